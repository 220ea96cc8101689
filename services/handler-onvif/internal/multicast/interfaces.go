// Package multicast sends to and receives from a multicast group on the network interfaces of the
// node, over IPv4 and IPv6.
package multicast

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// InterfaceFilter selects network interfaces by name.
type InterfaceFilter struct{ include, exclude []string }

// ParseInterfaceFilter parses globs such as `eth*`, and globs to exclude such as `!veth*`.
// Without a glob to include, all interfaces are included.
func ParseInterfaceFilter(patterns []string) (InterfaceFilter, error) {
	var f InterfaceFilter
	for _, pattern := range patterns {
		name, excluded := strings.CutPrefix(strings.TrimSpace(pattern), "!")
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return InterfaceFilter{}, fmt.Errorf("interface pattern %q: must be a name or a glob, with '!' in front to exclude", pattern)
		}
		if excluded {
			f.exclude = append(f.exclude, name)
		} else {
			f.include = append(f.include, name)
		}
	}
	return f, nil
}

// Matches reports whether the interface is selected.
func (f InterfaceFilter) Matches(name string) bool {
	return (len(f.include) == 0 || matchesAny(f.include, name)) && !matchesAny(f.exclude, name)
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // ParseInterfaceFilter checked the pattern
		return ok
	})
}

// networkInterface is an interface and the networks, "udp4" and "udp6", that it has addresses of.
type networkInterface struct {
	net.Interface
	networks map[string]bool
	prefixes []netip.Prefix
}

// interfaces lists the selected interfaces that are up and support multicast.
func interfaces(filter InterfaceFilter) ([]networkInterface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var selected []networkInterface
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 || !filter.Matches(i.Name) {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // the interface was removed
		}
		s := networkInterface{Interface: i, networks: map[string]bool{}}
		for _, address := range addresses {
			if network, ok := address.(*net.IPNet); ok {
				s.networks["udp4"] = s.networks["udp4"] || network.IP.To4() != nil
				s.networks["udp6"] = s.networks["udp6"] || network.IP.To4() == nil
				if prefix, err := netip.ParsePrefix(network.String()); err == nil && !slices.Contains(s.prefixes, prefix.Masked()) {
					s.prefixes = append(s.prefixes, prefix.Masked())
				}
			}
		}
		selected = append(selected, s)
	}
	return selected, nil
}
