// Package network sends and hears multicast on the machine's interfaces, over IPv4 and IPv6.
package network

import (
	"fmt"
	"net"
	"path"
	"strings"
)

// Choice of interfaces: globs of which a name must match one, and globs after '!' of which it must match none.
type Choice struct{ wanted, unwanted []string }

// ParseChoice reads patterns such as `eth*` and `!veth*`; with none that is wanted, all are.
func ParseChoice(patterns []string) (Choice, error) {
	var c Choice
	for _, pattern := range patterns {
		name, not := strings.CutPrefix(strings.TrimSpace(pattern), "!")
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return Choice{}, fmt.Errorf("interface pattern %q: want a name or a glob, after '!' to leave it out", pattern)
		}
		if not {
			c.unwanted = append(c.unwanted, name)
		} else {
			c.wanted = append(c.wanted, name)
		}
	}
	return c, nil
}

// Includes tells whether the interface is chosen.
func (c Choice) Includes(name string) bool {
	return (len(c.wanted) == 0 || matches(c.wanted, name)) && !matches(c.unwanted, name)
}

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, name); ok { // ParseChoice checked the pattern
			return true
		}
	}
	return false
}

// link is an interface and what it has addresses for.
type link struct {
	net.Interface
	v4, v6 bool
}

// links are the chosen interfaces that are up and can multicast. Loopback counts when it is told to multicast.
func links(choice Choice) ([]link, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var found []link
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 || !choice.Includes(i.Name) {
			continue
		}
		l := link{Interface: i}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it left meanwhile
		}
		for _, address := range addresses {
			if network, ok := address.(*net.IPNet); ok {
				l.v4 = l.v4 || network.IP.To4() != nil
				l.v6 = l.v6 || network.IP.To4() == nil
			}
		}
		found = append(found, l)
	}
	return found, nil
}
