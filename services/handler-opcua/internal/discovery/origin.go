package discovery

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"

	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/address"
	"akri.sh/services/handler-opcua/internal/client"
)

// Servers name the addresses of other servers, and the handler connects to them. They may name
// addresses of their own network. The URLs of the Configuration come from its author.

// origin returns the network of a server. Its mask is that of the local network that it is in. For
// a server of another network it is the usual one, /24 or /64. A server on this host names the
// networks of this host.
func origin(server netip.Addr) address.Origin {
	bits := 64
	if server.Is4() {
		bits = 24
	}
	var networks []netip.Prefix
	if prefix, err := server.Prefix(bits); err == nil {
		networks = append(networks, prefix)
	}
	local, _ := net.InterfaceAddrs()
	for _, l := range local {
		if prefix, err := netip.ParsePrefix(l.String()); err == nil && (server.IsLoopback() || prefix.Contains(server)) {
			networks = append(networks, prefix.Masked())
		}
	}
	return address.Origin{Addr: server, Networks: networks}
}

// withOrigins returns a context in which the client connects only to networks of the servers that
// responded. It holds for names that resolve to another address than before.
func (p *Poller) withOrigins(ctx context.Context, responses map[string]response) context.Context {
	var all address.Origin
	for _, r := range responses {
		one := origin(r.from)
		all.Networks = append(all.Networks, one.Networks...)
		if !all.Addr.IsValid() || one.Addr.IsLoopback() {
			all.Addr = one.Addr
		}
	}
	return p.Policy.WithOrigin(ctx, all)
}

// refuseForeign removes the applications whose host is not on the network of the server that
// announced it. A server that announces only itself gets the host of the queried URL instead.
func (p *Poller) refuseForeign(log *zap.Logger, applications map[string][]client.Application, responses map[string]response) {
	for queried, list := range applications {
		from := origin(responses[queried].from)
		self := !slices.ContainsFunc(list, isDiscoveryServer)
		applications[queried] = slices.DeleteFunc(list, func(a client.Application) bool {
			announced, text, ok := firstURL(a.URLs)
			if !ok || !p.isForeign(queried, announced.Hostname(), from) {
				return false
			}
			if p.foreign.Record(text, true, nil) {
				log.Warn("OPC UA server announces an address of another network; allow it with --allow-networks",
					zap.String("url", queried), zap.String("announced", text), zap.Bool("replaced", self))
			}
			return !self
		})
	}
}

// isForeign returns whether the host has addresses, and the queried server may not announce them.
func (p *Poller) isForeign(queried, host string, from address.Origin) bool {
	return len(p.hosts.Last(host)) > 0 && !p.mayAnnounce(queried, host, from)
}

// mayAnnounce returns whether the host has an address that the queried server may announce. Every
// server may announce the host of the queried URL.
func (p *Poller) mayAnnounce(queried, host string, from address.Origin) bool {
	base, err := url.Parse(queried)
	same := err == nil && base.Hostname() == host
	return slices.ContainsFunc(p.hosts.Last(host), func(ip netip.Addr) bool { return same || p.Policy.Allows(ip, from) })
}

// limitPerHost returns at most max servers of each host, the first by URL.
func limitPerHost(log *zap.Logger, servers []Server, maximum int, reported *handler.Retained[bool]) []Server {
	count := map[string]int{}
	return slices.DeleteFunc(servers, func(s Server) bool {
		parsed, err := url.Parse(s.URL)
		if err != nil {
			return true
		}
		host := parsed.Hostname()
		count[host]++
		excess := count[host] > maximum
		if excess && reported.Record(host, true, nil) {
			log.Warn("too many OPC UA servers of one host, the others are ignored", zap.String("host", host), zap.Int("limit", maximum))
		}
		return excess
	})
}
