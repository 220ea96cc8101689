package cameras

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
)

// usableAddresses returns the addresses that may be called, best first. The order is the same on
// all nodes: http before https because upstream Akri supports only http, routable before
// link-local, IPv4 before IPv6, otherwise as announced.
func usableAddresses(addresses []string, sender netip.Addr) []string {
	usable := slices.DeleteFunc(slices.Clone(addresses), func(address string) bool { return !isUsable(address, sender) })
	slices.SortStableFunc(usable, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return slices.Compact(usable)
}

// isUsable rejects multicast and unspecified addresses, and loopback addresses from other hosts.
func isUsable(address string, sender netip.Addr) bool {
	host, _ := hostAndScheme(address)
	if host == "localhost" {
		return sender.IsLoopback()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return true // a host name
	}
	ip = ip.Unmap()
	return !ip.IsUnspecified() && !ip.IsMulticast() && (!ip.IsLoopback() || sender.Unmap().IsLoopback())
}

// isAddressOf reports whether the sender is the host of the address. The result is false for a host
// name, because it is not resolved.
func isAddressOf(sender netip.Addr, address string) bool {
	host, _ := hostAndScheme(address)
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().WithZone("") == sender.Unmap().WithZone("")
}

func rank(address string) int {
	host, scheme := hostAndScheme(address)
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

func hostAndScheme(address string) (host, scheme string) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", ""
	}
	return parsed.Hostname(), parsed.Scheme
}
