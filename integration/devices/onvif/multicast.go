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

// The groups of WS-Discovery.
var (
	group4 = netip.MustParseAddrPort("239.255.255.250:3702")
	group6 = netip.MustParseAddrPort("[ff02::c]:3702")
)

func listenGroup(ctx context.Context, link *net.Interface, group netip.AddrPort) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var problem error
		err := raw.Control(func(fd uintptr) { problem = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, problem)
	}}
	network, any := "udp4", "0.0.0.0"
	if group.Addr().Is6() {
		network, any = "udp6", "::"
	}
	packets, err := config.ListenPacket(ctx, network, net.JoinHostPort(any, strconv.Itoa(int(group.Port()))))
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

// voice is the socket that a camera speaks from.
type voice struct {
	conn   *net.UDPConn
	source netip.Addr
}

func (f *Fleet) voice(source netip.Addr) (voice, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(f.zoned(netip.AddrPortFrom(source, 0))))
	if err != nil {
		return voice{}, fmt.Errorf("open socket: %w", err)
	}
	return voice{conn, source}, nil
}

// zoned is the address with the interface that a link-local one needs: by number, as names are those of another namespace.
func (f *Fleet) zoned(address netip.AddrPort) netip.AddrPort {
	if address.Addr().Is6() && address.Addr().IsLinkLocalUnicast() {
		return netip.AddrPortFrom(address.Addr().WithZone(strconv.Itoa(f.link.Index)), address.Port())
	}
	return address
}

// toGroup names its source, which a socket that chooses the interface otherwise forgets.
func (v voice) toGroup(link *net.Interface, datagram []byte) error {
	var err error
	if v.source.Is4() {
		_, err = ipv4.NewPacketConn(v.conn).WriteTo(datagram,
			&ipv4.ControlMessage{IfIndex: link.Index, Src: v.source.AsSlice()}, net.UDPAddrFromAddrPort(group4))
	} else {
		_, err = ipv6.NewPacketConn(v.conn).WriteTo(datagram,
			&ipv6.ControlMessage{IfIndex: link.Index, Src: v.source.AsSlice()}, net.UDPAddrFromAddrPort(group6))
	}
	if err != nil {
		return fmt.Errorf("send to group: %w", err)
	}
	return nil
}
