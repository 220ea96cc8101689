package cameras

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"

	"akri.sh/libs/handler/address"
)

// usableAddresses returns the addresses that may be called, best first. The order is the same on
// all nodes: http before https because upstream Akri supports only http, routable before
// link-local, IPv4 before IPv6, otherwise as announced.
func (c *Cache) usableAddresses(addresses []string, sender address.Origin) []string {
	usable := slices.DeleteFunc(slices.Clone(addresses), func(address string) bool { return !c.isUsable(address, sender) })
	slices.SortStableFunc(usable, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return slices.Compact(usable)
}

// isUsable rejects addresses that the sender must not name. A host name is checked when it is
// resolved.
func (c *Cache) isUsable(announced string, sender address.Origin) bool {
	host, _ := hostAndScheme(announced)
	if host == "localhost" {
		return sender.Addr.IsLoopback()
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || c.Policy.Allows(ip, sender)
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
