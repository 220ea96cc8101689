package roster

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
)

// usable returns the addresses that may be asked, best first, in an order that all nodes agree on: http before https as
// Akri knows only http, routable before link-local, IPv4 before IPv6, then as the camera lists them.
func usable(addresses []string, from netip.Addr) []string {
	kept := slices.DeleteFunc(slices.Clone(addresses), func(address string) bool { return !reachable(address, from) })
	slices.SortStableFunc(kept, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return slices.Compact(kept)
}

// reachable is false for what would lead a question to this machine itself, or to many: only what comes from this
// machine may name it.
func reachable(address string, from netip.Addr) bool {
	host, _ := split(address)
	if host == "localhost" {
		return from.IsLoopback()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return true // a name
	}
	ip = ip.Unmap()
	return !ip.IsUnspecified() && !ip.IsMulticast() && (!ip.IsLoopback() || from.Unmap().IsLoopback())
}

// isFrom tells whether what came from there is said by the host of the address itself. It is not when the host has a name:
// who announced it cannot be told.
func isFrom(source netip.Addr, address string) bool {
	host, _ := split(address)
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().WithZone("") == source.Unmap().WithZone("")
}

func rank(address string) int {
	host, scheme := split(address)
	rank := 0
	if scheme != "http" {
		rank += 4
	}
	ip, err := netip.ParseAddr(host)
	if err == nil && ip.IsLinkLocalUnicast() {
		rank += 2
	}
	if err == nil && ip.Is6() {
		rank++
	}
	return rank
}

func split(address string) (host, scheme string) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", ""
	}
	return parsed.Hostname(), parsed.Scheme
}
