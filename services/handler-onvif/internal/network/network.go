package network

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

// readBuffer holds the answers of a thousand cameras that come at once, if the kernel allows it.
const readBuffer = 4 << 20

// longest is more than a datagram can be.
const longest = 1 << 16

// Group is a multicast address in both families, and its port.
type Group struct {
	V4, V6 netip.Addr
	Port   uint16
}

// Network has, per family, a socket to ask from, where answers come to, and one that hears what is said to the group.
type Network struct {
	group          Group
	choice         Choice
	log            *zap.Logger
	ask4, ask6     *net.UDPConn
	hear4, hear6   *net.UDPConn
	joined, failed map[string]bool // by family and interface
	queue          *queue
}

// Waiting tells whether there are datagrams that were received and not heard yet.
func (n *Network) Waiting() bool { return n.queue.waiting() }

// Open opens the sockets; a family that the machine lacks is left out, and so is hearing when the port is taken.
func Open(ctx context.Context, group Group, choice Choice, log *zap.Logger) (*Network, error) {
	n := &Network{group: group, choice: choice, log: log, joined: map[string]bool{}, failed: map[string]bool{}, queue: newQueue()}
	var err4, err6 error
	n.ask4, err4 = listen(ctx, "udp4", "0.0.0.0:0")
	n.ask6, err6 = listen(ctx, "udp6", "[::]:0")
	if err4 != nil && err6 != nil {
		return nil, fmt.Errorf("open sockets: %w", errors.Join(err4, err6))
	}
	n.hear4 = n.listenGroup(ctx, "udp4", "0.0.0.0", err4)
	n.hear6 = n.listenGroup(ctx, "udp6", "::", err6)
	return n, nil
}

func (n *Network) listenGroup(ctx context.Context, family, any string, unavailable error) *net.UDPConn {
	if unavailable != nil {
		n.log.Info("the machine lacks a family of addresses", zap.String("family", family), zap.Error(unavailable))
		return nil
	}
	conn, err := listen(ctx, family, net.JoinHostPort(any, fmt.Sprint(n.group.Port)))
	if err != nil {
		n.log.Warn("hear announcements: only answers to probes will be heard", zap.String("family", family), zap.Error(err))
	}
	return conn
}

func listen(ctx context.Context, family, address string) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var problem error
		err := raw.Control(func(fd uintptr) { problem = setOptions(int(fd), family) })
		return errors.Join(err, problem)
	}}
	packets, err := config.ListenPacket(ctx, family, address)
	if err != nil {
		return nil, err
	}
	conn := packets.(*net.UDPConn)
	_ = conn.SetReadBuffer(readBuffer)
	return conn, nil
}

func setOptions(socket int, family string) error {
	// Others on this machine may listen to the group too. What they joined on interfaces that are not chosen is not for us.
	level, joinedByAnyone := unix.IPPROTO_IP, unix.IP_MULTICAST_ALL
	if family == "udp6" {
		level, joinedByAnyone = unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL
	}
	return errors.Join(
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(socket, level, joinedByAnyone, 0),
	)
}

// Send sends the message to the group on every chosen interface, and hears the group there from now on. It returns on
// how many interfaces and families it was sent.
func (n *Network) Send(message []byte) (int, error) {
	chosen, err := links(n.choice)
	if err != nil {
		return 0, err
	}
	n.join(chosen)
	sent := 0
	for _, l := range chosen {
		if l.v4 && n.ask4 != nil {
			_, err := ipv4.NewPacketConn(n.ask4).WriteTo(message, &ipv4.ControlMessage{IfIndex: l.Index}, n.address(n.group.V4, ""))
			sent += n.sent(l, err)
		}
		if l.v6 && n.ask6 != nil {
			_, err := ipv6.NewPacketConn(n.ask6).WriteTo(message, &ipv6.ControlMessage{IfIndex: l.Index}, n.address(n.group.V6, l.Name))
			sent += n.sent(l, err)
		}
	}
	return sent, nil
}

func (n *Network) sent(l link, err error) int {
	if err != nil {
		n.log.Debug("send probe", zap.String("interface", l.Name), zap.Error(err))
		return 0
	}
	return 1
}

func (n *Network) address(group netip.Addr, zone string) *net.UDPAddr {
	return &net.UDPAddr{IP: group.AsSlice(), Port: int(n.group.Port), Zone: zone}
}

// join hears the group on each interface; memberships end with the interface.
func (n *Network) join(chosen []link) {
	joined := map[string]bool{}
	for _, l := range chosen {
		if l.v4 && n.hear4 != nil {
			n.joinOne(joined, fmt.Sprint("ipv4 ", l.Name, " ", l.Index), func() error {
				return ipv4.NewPacketConn(n.hear4).JoinGroup(&l.Interface, n.address(n.group.V4, ""))
			})
		}
		if l.v6 && n.hear6 != nil {
			n.joinOne(joined, fmt.Sprint("ipv6 ", l.Name, " ", l.Index), func() error {
				return ipv6.NewPacketConn(n.hear6).JoinGroup(&l.Interface, n.address(n.group.V6, ""))
			})
		}
	}
	n.joined = joined
}

func (n *Network) joinOne(joined map[string]bool, key string, join func() error) {
	if !n.joined[key] {
		if err := join(); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			if !n.failed[key] {
				n.log.Warn("join multicast group: only answers to probes will be heard there", zap.String("interface", key), zap.Error(err))
			}
			n.failed[key] = true
			return
		}
		delete(n.failed, key)
	}
	joined[key] = true
}

// Receive calls hear with each datagram, one after the other, until ctx ends, and closes the sockets.
func (n *Network) Receive(ctx context.Context, hear func(datagram []byte, from netip.Addr)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.queue.drain(ctx, hear) })
	for _, conn := range []*net.UDPConn{n.ask4, n.ask6, n.hear4, n.hear6} {
		if conn == nil {
			continue
		}
		// On the heap, where what no datagram was long enough for takes no memory; on its stack the goroutine would clear it all.
		buffer := make([]byte, longest)
		group.Go(func() error { return n.receive(ctx, conn, buffer) })
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
	}
	return group.Wait()
}

func (n *Network) receive(ctx context.Context, conn *net.UDPConn, buffer []byte) error {
	for {
		size, from, err := conn.ReadFromUDPAddrPort(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("receive: %w", err)
		case err != nil:
			continue // an ICMP error about something sent: the socket is good
		}
		n.queue.put(buffer[:size], from.Addr())
	}
}
