package multicast

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// readBuffer holds the simultaneous answers of a thousand cameras. The kernel may allow less.
	readBuffer = 4 << 20
	// maxDatagram is larger than any UDP datagram.
	maxDatagram = 1 << 16
)

// Group is a multicast group with an address in each family.
type Group struct {
	V4, V6 netip.Addr
	Port   uint16
}

// Conn has two sockets in each family: one sends to the group and receives the answers, the other
// one receives what others send to the group.
type Conn struct {
	group            Group
	filter           InterfaceFilter
	log              *zap.Logger
	sender4, sender6 *net.UDPConn
	member4, member6 *net.UDPConn
	joined, failed   map[string]bool // by family and interface
	queue            *queue
}

// Open opens the sockets. It skips a family that the node does not support, and the receiving
// sockets of the group if the port is in use.
func Open(ctx context.Context, group Group, filter InterfaceFilter, log *zap.Logger) (*Conn, error) {
	c := &Conn{group: group, filter: filter, log: log, joined: map[string]bool{}, failed: map[string]bool{}, queue: newQueue()}
	var err4, err6 error
	c.sender4, err4 = listen(ctx, "udp4", "0.0.0.0:0")
	c.sender6, err6 = listen(ctx, "udp6", "[::]:0")
	if err4 != nil && err6 != nil {
		return nil, fmt.Errorf("open sockets: %w", errors.Join(err4, err6))
	}
	c.member4 = c.listenGroup(ctx, "udp4", "0.0.0.0", err4)
	c.member6 = c.listenGroup(ctx, "udp6", "::", err6)
	return c, nil
}

func (c *Conn) listenGroup(ctx context.Context, network, host string, unsupported error) *net.UDPConn {
	if unsupported != nil {
		c.log.Info("address family is not available", zap.String("family", network), zap.Error(unsupported))
		return nil
	}
	conn, err := listen(ctx, network, net.JoinHostPort(host, fmt.Sprint(c.group.Port)))
	if err != nil {
		c.log.Warn("listening for announcements failed; cameras are found by probes only",
			zap.String("family", network), zap.Error(err))
	}
	return conn
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
func setOptions(fd int, network string) error {
	level, multicastAll := unix.IPPROTO_IP, unix.IP_MULTICAST_ALL
	if network == "udp6" {
		level, multicastAll = unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL
	}
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, level, multicastAll, 0),
	)
}

// Send joins the group on all selected interfaces and sends the message to it. It returns the
// number of successful sends, one for each interface and family.
func (c *Conn) Send(message []byte) (int, error) {
	selected, err := interfaces(c.filter)
	if err != nil {
		return 0, err
	}
	c.join(selected)
	sent := 0
	for _, i := range selected {
		if i.ipv4 && c.sender4 != nil {
			_, err := ipv4.NewPacketConn(c.sender4).WriteTo(message, &ipv4.ControlMessage{IfIndex: i.Index}, c.address(c.group.V4, ""))
			sent += c.countSent(i, err)
		}
		if i.ipv6 && c.sender6 != nil {
			_, err := ipv6.NewPacketConn(c.sender6).WriteTo(message, &ipv6.ControlMessage{IfIndex: i.Index}, c.address(c.group.V6, i.Name))
			sent += c.countSent(i, err)
		}
	}
	return sent, nil
}

func (c *Conn) countSent(i networkInterface, err error) int {
	if err != nil {
		c.log.Debug("sending probe failed", zap.String("interface", i.Name), zap.Error(err))
		return 0
	}
	return 1
}

func (c *Conn) address(group netip.Addr, zone string) *net.UDPAddr {
	return &net.UDPAddr{IP: group.AsSlice(), Port: int(c.group.Port), Zone: zone}
}

// join joins the group on the interfaces. The kernel ends a membership when it removes the
// interface.
func (c *Conn) join(selected []networkInterface) {
	joined := map[string]bool{}
	for _, i := range selected {
		if i.ipv4 && c.member4 != nil {
			c.joinInterface(joined, fmt.Sprint("ipv4 ", i.Name, " ", i.Index), func() error {
				return ipv4.NewPacketConn(c.member4).JoinGroup(&i.Interface, c.address(c.group.V4, ""))
			})
		}
		if i.ipv6 && c.member6 != nil {
			c.joinInterface(joined, fmt.Sprint("ipv6 ", i.Name, " ", i.Index), func() error {
				return ipv6.NewPacketConn(c.member6).JoinGroup(&i.Interface, c.address(c.group.V6, ""))
			})
		}
	}
	c.joined = joined
}

// joinInterface logs a failure once per interface.
func (c *Conn) joinInterface(joined map[string]bool, key string, join func() error) {
	if !c.joined[key] {
		if err := join(); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			if !c.failed[key] {
				c.log.Warn("joining multicast group failed; cameras on the interface are found by probes only",
					zap.String("interface", key), zap.Error(err))
			}
			c.failed[key] = true
			return
		}
		delete(c.failed, key)
	}
	joined[key] = true
}

// Receive calls handle for each datagram in order, until ctx ends. Then it closes the sockets.
func (c *Conn) Receive(ctx context.Context, handle func(datagram []byte, from netip.Addr)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.queue.run(ctx, handle) })
	for _, conn := range []*net.UDPConn{c.sender4, c.sender6, c.member4, c.member6} {
		if conn == nil {
			continue
		}
		// Allocated here and not in receive: on the goroutine's stack, all of it would become
		// resident.
		buffer := make([]byte, maxDatagram)
		group.Go(func() error { return c.receive(ctx, conn, buffer) })
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
	}
	return group.Wait()
}

func (c *Conn) receive(ctx context.Context, conn *net.UDPConn, buffer []byte) error {
	for {
		size, from, err := conn.ReadFromUDPAddrPort(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("receive: %w", err)
		case err != nil:
			continue // an ICMP error for a sent datagram; the socket still works
		}
		c.queue.put(buffer[:size], from.Addr())
	}
}

// Pending reports whether Receive has datagrams that are not handled yet.
func (c *Conn) Pending() bool { return c.queue.pending() }
