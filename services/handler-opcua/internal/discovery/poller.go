// Package discovery lists the OPC UA servers that a Configuration selects. A Poller sends the
// requests; SelectServers is pure.
package discovery

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	details "akri.sh/libs/details/opcua"
	"akri.sh/libs/handler"
	"akri.sh/libs/handler/address"
	"akri.sh/services/handler-opcua/internal/client"
)

const (
	// maxConcurrent limits the open connections of one Configuration.
	maxConcurrent = 128
	// maxAttempts is the number of requests to a server without a fresh response, so that one lost
	// packet does not lose a device. retryDelay is the pause between them.
	maxAttempts = 2
	retryDelay  = 500 * time.Millisecond
	// endpointsRefresh is how often the endpoints of a server are requested; they rarely change.
	// endpointsRetry is the pause after a failure.
	endpointsRefresh = 5 * time.Minute
	endpointsRetry   = 30 * time.Second
)

// Time limits of the steps of a round. Together they are less than the 30 s that handler.Poll
// allows, so that servers that do not respond cannot fail a round. The next round continues with
// what is missing.
const (
	findServersLimit  = 17 * time.Second // twice the default of --timeout, plus retryDelay
	unregisteredLimit = 5 * time.Second
	lookUpLimit       = 2 * time.Second
	endpointsLimit    = 5 * time.Second
)

// Options are common to all pollers of the handler.
type Options struct {
	Client client.Client
	// LookUpHost returns the addresses of a host name, like net.Resolver.LookupHost.
	LookUpHost func(ctx context.Context, host string) ([]string, error)
	// Policy decides which addresses the handler connects to that a server has named.
	Policy address.Policy
	// MaxPerHost is the number of servers of one host.
	MaxPerHost int
	// Patience is how long the last response of a server counts after the server stopped
	// responding.
	Patience time.Duration
	// Observe is called with the result of each FindServers request.
	Observe func(err error)
}

// Poller lists the servers of one Configuration. It keeps responses between rounds.
type Poller struct {
	Options

	details   details.Details
	responses handler.Retained[response]     // by configured URL
	endpoints handler.Retained[endpoints]    // by URL of a device or an unregistered server
	hosts     handler.Retained[[]netip.Addr] // addresses by host; none if the name does not exist
	foreign   handler.Retained[bool]         // refused URLs that were logged
	excessive handler.Retained[bool]         // hosts with too many servers that were logged
}

// response is what a server returned to FindServers and FindServersOnNetwork.
type response struct {
	from         netip.Addr
	applications []client.Application
	onNetwork    []string
}

// endpoints is what a server returned to GetEndpoints.
type endpoints struct {
	self     client.Application
	policies []string
}

// NewPoller returns a Poller for a Configuration.
func NewPoller(options Options, d details.Details) *Poller {
	return &Poller{Options: options, details: d}
}

// List runs one round: it queries the configured URLs, then the servers found there. It implements
// handler.List.
func (p *Poller) List(ctx context.Context, request handler.Request) ([]*handler.Device, error) {
	servers, called := p.servers(ctx, request.Log)
	urls := make([]string, len(servers))
	for i, server := range servers {
		urls[i] = server.URL
	}
	p.getEndpoints(called, urls, endpointsLimit)
	p.endpoints.Forget(2 * endpointsRefresh)
	p.hosts.Forget(2 * endpointsRefresh)
	p.foreign.Forget(2 * endpointsRefresh)
	p.excessive.Forget(2 * endpointsRefresh)
	if ctx.Err() != nil {
		return nil, ctx.Err() // an incomplete round
	}
	devices := make([]*handler.Device, len(servers))
	for i, server := range servers {
		devices[i] = device(server, p.endpoints.Last(server.URL).policies)
	}
	return devices, nil
}

// servers returns the servers that the Configuration selects, and a context for connections to
// them.
func (p *Poller) servers(ctx context.Context, log *zap.Logger) (servers []Server, called context.Context) {
	responses := p.findServers(ctx, log)
	var unregistered []string
	for _, response := range responses {
		unregistered = append(unregistered, response.unregistered()...)
	}
	called = p.withOrigins(ctx, responses)
	p.getEndpoints(called, unregistered, unregisteredLimit)
	applications := map[string][]client.Application{}
	for url, response := range responses {
		applications[url] = p.applications(response)
	}
	p.lookUpHosts(ctx, Hosts(applications))
	p.refuseForeign(log, applications, responses)
	servers = SelectServers(applications, p.details.Filter, func(queried, host string) bool {
		return p.mayAnnounce(queried, host, origin(responses[queried].from))
	})
	return limitPerHost(log, servers, p.MaxPerHost, &p.excessive), called
}

func device(server Server, policies []string) *handler.Device {
	properties := map[string]string{"OPCUA_DISCOVERY_URL": server.URL}
	for key, value := range map[string]string{
		"OPCUA_APPLICATION_URI": server.URI, "OPCUA_APPLICATION_NAME": server.Name,
		"OPCUA_SECURITY_POLICIES": strings.Join(policies, ","),
	} {
		if value != "" {
			properties[key] = value
		}
	}
	return &handler.Device{Id: server.URL, Properties: properties}
}

// findServers queries all configured URLs and returns the responses that count, by URL.
func (p *Poller) findServers(ctx context.Context, log *zap.Logger) map[string]response {
	forEach(ctx, findServersLimit, p.details.URLs, func(ctx context.Context, url string) {
		received, err := p.findServersAt(ctx, url)
		p.Observe(err)
		switch changed := p.responses.Record(url, received, err); {
		case changed && err != nil:
			log.Warn("OPC UA server does not respond", zap.String("url", url), zap.Error(err))
		case changed:
			log.Info("OPC UA server responds", zap.String("url", url))
		}
	})
	return p.responses.Current(p.Patience)
}

func (p *Poller) findServersAt(ctx context.Context, url string) (response, error) {
	attempts := uint(maxAttempts)
	if p.responses.Fresh(url, p.Patience) {
		attempts = 1
	}
	return backoff.Retry(ctx, func() (response, error) {
		received, err := p.Client.FindServers(ctx, url)
		return response{received.From, received.Applications, received.OnNetwork}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(retryDelay)), backoff.WithMaxTries(attempts))
}

// unregistered returns the URLs of the servers that the discovery server received by multicast and
// that did not register. Only their URL is known.
func (r response) unregistered() []string {
	registered := map[string]bool{}
	for _, application := range r.applications {
		for _, url := range application.URLs {
			registered[url] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(r.onNetwork), func(url string) bool { return registered[url] })
}

// applications returns the applications of a response, and the unregistered servers as their
// endpoints describe them.
func (p *Poller) applications(response response) []client.Application {
	applications := slices.Clone(response.applications)
	for _, url := range response.unregistered() {
		if self := p.endpoints.Last(url).self; self.URI != "" {
			self.URLs = []string{url}
			applications = append(applications, self)
		}
	}
	return applications
}

// getEndpoints requests the endpoints that are due. The last response of a server stays when it
// does not respond.
func (p *Poller) getEndpoints(ctx context.Context, urls []string, limit time.Duration) {
	// A map has a random order: if one round is too short for all, each has its chance.
	due := map[string]bool{}
	for _, url := range urls {
		if p.endpoints.Due(url, endpointsRefresh, endpointsRetry) {
			due[url] = true
		}
	}
	forEach(ctx, limit, slices.Collect(maps.Keys(due)), func(ctx context.Context, url string) {
		self, policies, err := p.Client.GetEndpoints(ctx, url)
		p.endpoints.Record(url, endpoints{self: self, policies: policies}, err)
	})
}

// lookUpHosts finds the addresses of the host names. A failing name server changes nothing.
func (p *Poller) lookUpHosts(ctx context.Context, hosts []string) {
	names := slices.DeleteFunc(hosts, func(host string) bool {
		ip, err := netip.ParseAddr(host)
		if err == nil {
			p.hosts.Record(host, []netip.Addr{ip}, nil)
		}
		return err == nil
	})
	forEach(ctx, lookUpLimit, names, func(ctx context.Context, host string) {
		texts, err := p.LookUpHost(ctx, host)
		if dnsErr, ok := errors.AsType[*net.DNSError](err); ok && dnsErr.IsNotFound {
			err = nil
		}
		var addresses []netip.Addr
		for _, text := range texts {
			if ip, err := netip.ParseAddr(text); err == nil {
				addresses = append(addresses, ip)
			}
		}
		p.hosts.Record(host, addresses, err)
	})
}

// forEach calls do for the keys, maxConcurrent at a time, and waits. It starts no call after the
// limit.
func forEach(ctx context.Context, limit time.Duration, keys []string, do func(context.Context, string)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for _, key := range keys {
		group.Go(func() error {
			if ctx.Err() == nil {
				do(ctx, key)
			}
			return nil
		})
	}
	_ = group.Wait()
}
