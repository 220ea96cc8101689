// Package address decides which addresses a handler may call that a device or server on the network
// has named. Without it, any host on the network could make a handler call services that only the
// node can reach.
package address

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
)

// Origin is the host that named an address.
type Origin struct {
	Addr netip.Addr
	// Networks are those of the interface that received the message of the host.
	Networks []netip.Prefix
}

// Policy has the exceptions.
type Policy struct {
	// Allow are networks whose addresses every host may name.
	Allow []netip.Prefix
	// Deny are addresses that no host may name, unless Allow has them.
	Deny []netip.Addr
}

// NewPolicy returns the policy with the networks. It denies the address of the Kubernetes API
// server.
func NewPolicy(allow []netip.Prefix) Policy {
	p := Policy{Allow: allow}
	if server, err := netip.ParseAddr(os.Getenv("KUBERNETES_SERVICE_HOST")); err == nil {
		p.Deny = append(p.Deny, server.Unmap())
	}
	return p
}

// Allows returns whether the host may name the address: its own, and those of the networks of the
// interface. Only the node itself may name its loopback addresses.
func (p Policy) Allows(ip netip.Addr, origin Origin) bool {
	ip, from := ip.Unmap().WithZone(""), origin.Addr.Unmap().WithZone("")
	switch {
	case !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return false
	case containsAny(p.Allow, ip):
		return true
	case slices.Contains(p.Deny, ip):
		return false
	case ip.IsLoopback():
		return from.IsLoopback()
	}
	return ip == from || containsAny(origin.Networks, ip)
}

func containsAny(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// check is an origin and its policy, in a context.
type check struct {
	policy Policy
	origin Origin
}

type contextKey struct{}

// WithOrigin returns a context in which Control refuses addresses that the origin may not name.
func (p Policy) WithOrigin(ctx context.Context, origin Origin) context.Context {
	return context.WithValue(ctx, contextKey{}, check{p, origin})
}

// Control is the ControlContext of a net.Dialer. It runs after a host name is resolved, so that a
// name cannot hide an address.
func Control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	c, ok := ctx.Value(contextKey{}).(check)
	if !ok {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("split address: %w", err)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	if !c.policy.Allows(ip, c.origin) {
		return fmt.Errorf("%s is not on the network of %s, which named it; allow it with --allow-networks", ip, c.origin.Addr)
	}
	return nil
}
