package onvif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Multicast groups of WS-Discovery.
var (
	group4 = netip.MustParseAddrPort("239.255.255.250:3702")
	group6 = netip.MustParseAddrPort("[ff02::c]:3702")
)

func listenGroup(ctx context.Context, link *net.Interface, group netip.AddrPort) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var optionErr error
		err := raw.Control(func(fd uintptr) { optionErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, optionErr)
	}}
	network, host := "udp4", "0.0.0.0"
	if group.Addr().Is6() {
		network, host = "udp6", "::"
	}
	packets, err := config.ListenPacket(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(group.Port()))))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	conn := packets.(*net.UDPConn)
	join := ipv4.NewPacketConn(conn).JoinGroup
	if group.Addr().Is6() {
		join = ipv6.NewPacketConn(conn).JoinGroup
	}
	if err := join(link, net.UDPAddrFromAddrPort(group)); err != nil {
		return nil, errors.Join(fmt.Errorf("join group: %w", err), conn.Close())
	}
	return conn, nil
}

// sender is the socket from which a camera sends.
type sender struct {
	conn   *net.UDPConn
	source netip.Addr
}

func (f *Fleet) newSender(source netip.Addr) (sender, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(f.withZone(netip.AddrPortFrom(source, 0))))
	if err != nil {
		return sender{}, fmt.Errorf("open socket: %w", err)
	}
	return sender{conn, source}, nil
}

// withZone adds the interface to a link-local address. The zone is the index of the interface,
// because its name may belong to another namespace.
func (f *Fleet) withZone(address netip.AddrPort) netip.AddrPort {
	if address.Addr().Is6() && address.Addr().IsLinkLocalUnicast() {
		return netip.AddrPortFrom(address.Addr().WithZone(strconv.Itoa(f.link.Index)), address.Port())
	}
	return address
}

// toGroup sends to the multicast group. It sets the source address explicitly, because the kernel
// ignores the bound address if the interface is set.
func (s sender) toGroup(link *net.Interface, datagram []byte) error {
	var err error
	if s.source.Is4() {
		_, err = ipv4.NewPacketConn(s.conn).WriteTo(datagram,
			&ipv4.ControlMessage{IfIndex: link.Index, Src: s.source.AsSlice()}, net.UDPAddrFromAddrPort(group4))
	} else {
		_, err = ipv6.NewPacketConn(s.conn).WriteTo(datagram,
			&ipv6.ControlMessage{IfIndex: link.Index, Src: s.source.AsSlice()}, net.UDPAddrFromAddrPort(group6))
	}
	if err != nil {
		return fmt.Errorf("send to group: %w", err)
	}
	return nil
}
