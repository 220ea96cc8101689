package multicast

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"akri.sh/libs/handler/address"
)

const (
	// readBuffer holds the simultaneous answers of a thousand cameras. The kernel may allow less.
	readBuffer = 4 << 20
	// maxDatagram is larger than any UDP datagram.
	maxDatagram = 1 << 16
)

// Conn sends to and receives from multicast groups of IPv4 and IPv6.
type Conn struct {
	filter         InterfaceFilter
	log            *zap.Logger
	families       []family
	joined, failed map[string]bool // by family and interface
	received       *receiveBuffer

	mu       sync.Mutex
	networks map[int][]netip.Prefix // by index of the interface
}

// family has the sockets of an address family.
type family struct {
	network string // "udp4" or "udp6"
	group   *net.UDPAddr
	// sender sends to the group and receives the answers. member receives what others send to the
	// group. It is nil if the port is in use.
	sender, member *net.UDPConn
}

// Open opens the sockets for one group of each family. It skips a family that the node does not
// support.
func Open(ctx context.Context, groups []netip.AddrPort, filter InterfaceFilter, log *zap.Logger) (*Conn, error) {
	c := &Conn{filter: filter, log: log, joined: map[string]bool{}, failed: map[string]bool{}, received: newReceiveBuffer()}
	var problems []error
	for _, group := range groups {
		f := family{network: "udp4", group: net.UDPAddrFromAddrPort(group)}
		host := "0.0.0.0"
		if group.Addr().Is6() {
			f.network, host = "udp6", "::"
		}
		var err error
		if f.sender, err = listen(ctx, f.network, net.JoinHostPort(host, "0")); err != nil {
			log.Info("address family is not available", zap.String("family", f.network), zap.Error(err))
			problems = append(problems, err)
			continue
		}
		if f.member, err = listen(ctx, f.network, net.JoinHostPort(host, fmt.Sprint(group.Port()))); err != nil {
			log.Warn("listening for announcements failed; cameras are found by probes only",
				zap.String("family", f.network), zap.Error(err))
		}
		c.families = append(c.families, f)
	}
	if len(c.families) == 0 {
		return nil, fmt.Errorf("open sockets: %w", errors.Join(problems...))
	}
	return c, nil
}

func listen(ctx context.Context, network, address string) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var optionErr error
		err := raw.Control(func(fd uintptr) { optionErr = setOptions(int(fd), network) })
		return errors.Join(err, optionErr)
	}}
	packetConn, err := config.ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := packetConn.(*net.UDPConn)
	_ = conn.SetReadBuffer(readBuffer)
	return conn, nil
}

// setOptions shares the port with other processes, and limits a socket to its own group
// memberships: other processes may have joined the group on interfaces that the filter excludes.
// The kernel does not record the interface of a datagram that it receives before packetInfo is set.
func setOptions(fd int, network string) error {
	level, multicastAll, packetInfo := unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, unix.IP_PKTINFO
	if network == "udp6" {
		level, multicastAll, packetInfo = unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, unix.IPV6_RECVPKTINFO
	}
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, level, multicastAll, 0),
		unix.SetsockoptInt(fd, level, packetInfo, 1),
	)
}

// Send joins the groups on all selected interfaces and sends the message to them. It returns the
// number of successful sends, one for each interface and family.
func (c *Conn) Send(message []byte) (int, error) {
	selected, err := interfaces(c.filter)
	if err != nil {
		return 0, err
	}
	c.setNetworks(selected)
	c.join(selected)
	sent := 0
	for _, i := range selected {
		for _, f := range c.families {
			if !i.networks[f.network] {
				continue
			}
			if err := f.send(message, i); err != nil {
				c.log.Debug("sending probe failed", zap.String("interface", i.Name), zap.Error(err))
				continue
			}
			sent++
		}
	}
	return sent, nil
}

func (f family) send(message []byte, i networkInterface) (err error) {
	if f.network == "udp4" {
		_, err = ipv4.NewPacketConn(f.sender).WriteTo(message, &ipv4.ControlMessage{IfIndex: i.Index}, f.group)
		return err
	}
	group := *f.group
	group.Zone = i.Name
	_, err = ipv6.NewPacketConn(f.sender).WriteTo(message, &ipv6.ControlMessage{IfIndex: i.Index}, &group)
	return err
}

// join joins the groups on the interfaces. The kernel ends a membership when it removes the
// interface.
func (c *Conn) join(selected []networkInterface) {
	joined := map[string]bool{}
	for _, i := range selected {
		for _, f := range c.families {
			if i.networks[f.network] && f.member != nil {
				c.joinInterface(joined, f, i)
			}
		}
	}
	c.joined = joined
}

// joinInterface logs a failure once per interface.
func (c *Conn) joinInterface(joined map[string]bool, f family, i networkInterface) {
	key := fmt.Sprint(f.network, " ", i.Name, " ", i.Index)
	if !c.joined[key] {
		join := ipv4.NewPacketConn(f.member).JoinGroup
		if f.network == "udp6" {
			join = ipv6.NewPacketConn(f.member).JoinGroup
		}
		if err := join(&i.Interface, f.group); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			if !c.failed[key] {
				c.log.Warn("joining multicast group failed; cameras on the interface are found by probes only",
					zap.String("interface", i.Name), zap.String("family", f.network), zap.Error(err))
			}
			c.failed[key] = true
			return
		}
		delete(c.failed, key)
	}
	joined[key] = true
}

// Receive calls handle for each datagram in order, until ctx ends. Then it closes the sockets.
func (c *Conn) Receive(ctx context.Context, handle func(datagram []byte, from address.Origin)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.received.run(ctx, handle) })
	for _, f := range c.families {
		for _, conn := range []*net.UDPConn{f.sender, f.member} {
			if conn == nil {
				continue
			}
			// Allocated on the heap: on the stack of receive, all of it would become resident.
			buffer := make([]byte, maxDatagram)
			group.Go(func() error { return c.receive(ctx, f.network, conn, buffer) })
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
		}
	}
	return group.Wait()
}

func (c *Conn) receive(ctx context.Context, network string, conn *net.UDPConn, buffer []byte) error {
	read, err := reader(network, conn)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("request the interface of datagrams: %w", err)
	}
	for {
		size, index, from, err := read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("receive: %w", err)
		case err != nil:
			continue // an ICMP error for a sent datagram; the socket still works
		}
		c.received.put(buffer[:size], address.Origin{Addr: from, Networks: c.networksOf(index)})
	}
}

// reader returns a function that reads a datagram. It returns its size, the index of the interface
// that received it, and its sender.
func reader(network string, conn *net.UDPConn) (func([]byte) (size, index int, from netip.Addr, err error), error) {
	if network == "udp4" {
		packets := ipv4.NewPacketConn(conn)
		return func(buffer []byte) (size, index int, from netip.Addr, err error) {
			size, control, sender, err := packets.ReadFrom(buffer)
			if control != nil {
				index = control.IfIndex
			}
			return size, index, addrOf(sender), err
		}, packets.SetControlMessage(ipv4.FlagInterface, true)
	}
	packets := ipv6.NewPacketConn(conn)
	return func(buffer []byte) (size, index int, from netip.Addr, err error) {
		size, control, sender, err := packets.ReadFrom(buffer)
		if control != nil {
			index = control.IfIndex
		}
		return size, index, addrOf(sender), err
	}, packets.SetControlMessage(ipv6.FlagInterface, true)
}

func addrOf(sender net.Addr) netip.Addr {
	if udp, ok := sender.(*net.UDPAddr); ok {
		return udp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

func (c *Conn) setNetworks(selected []networkInterface) {
	networks := make(map[int][]netip.Prefix, len(selected))
	for _, i := range selected {
		networks[i.Index] = i.prefixes
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.networks = networks
}

// networksOf returns none for an interface that is not selected.
func (c *Conn) networksOf(index int) []netip.Prefix {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.networks[index]
}

// Pending reports whether Receive has datagrams that are not handled yet.
func (c *Conn) Pending() bool { return c.received.pending() }
