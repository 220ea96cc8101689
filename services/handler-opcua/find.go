package opcua

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-opcua/internal/client"
	"akri.sh/services/handler-opcua/internal/servers"
)

const (
	// atOnce bounds the connections that are open for one Configuration.
	atOnce = 128
	// attempts to reach a server that has no answer that still counts, and the pause between them: a packet that is lost
	// costs no device.
	attempts = 2
	pause    = 500 * time.Millisecond
	// describeEvery is how often a server is asked for its endpoints, which hardly ever change.
	describeEvery = 5 * time.Minute
	// describeAgain is the pause after one that did not tell.
	describeAgain = 30 * time.Second
)

// A round must end within the 30 s that Poll has for it, whoever is silent: what is not known by then the next one finds out.
const (
	askWithin     = 17 * time.Second // twice the default of --timeout, and the pause
	explainWithin = 5 * time.Second
	lookUpWithin  = 2 * time.Second
	detailWithin  = 5 * time.Second
)

// finder is what all searches share.
type finder struct {
	client   client.Client
	lookUp   func(ctx context.Context, host string) ([]string, error)
	metrics  *metrics
	patience time.Duration
}

// search answers one Configuration. It remembers what servers said, so that one answer that does not come is no change.
type search struct {
	finder
	wanted wanted

	answers   *memory[answer]
	endpoints *memory[endpoint]
	hosts     *memory[bool] // whether a host name has an address
}

type answer struct {
	known     []servers.Application
	onNetwork []string
}

type endpoint struct {
	self     servers.Application
	policies []string
}

func (f finder) search(wanted wanted) *search {
	return &search{
		finder: f, wanted: wanted,
		answers: newMemory[answer](), endpoints: newMemory[endpoint](), hosts: newMemory[bool](),
	}
}

// list is one round: ask the configured URLs, then the servers that were found there for what only they know.
func (s *search) list(ctx context.Context, request handler.Request) ([]*handler.Device, error) {
	answered := s.ask(ctx, request.Log)
	var heardOf []string
	for _, answer := range answered {
		heardOf = append(heardOf, answer.unlisted()...)
	}
	s.describe(ctx, heardOf, explainWithin)
	answers := map[string][]servers.Application{}
	for url, answer := range answered {
		answers[url] = s.applications(answer)
	}
	s.resolve(ctx, servers.Hosts(answers))
	found := servers.Choose(answers, s.wanted.filter, func(host string) bool { return s.hosts.get(host) })
	urls := make([]string, len(found))
	for i, one := range found {
		urls[i] = one.URL
	}
	s.describe(ctx, urls, detailWithin)
	s.endpoints.forget(2 * describeEvery)
	s.hosts.forget(2 * describeEvery)
	if ctx.Err() != nil {
		return nil, ctx.Err() // half a round says nothing
	}
	devices := make([]*handler.Device, len(found))
	for i, one := range found {
		devices[i] = device(one, s.endpoints.get(one.URL).policies)
	}
	return devices, nil
}

func device(found servers.Found, policies []string) *handler.Device {
	properties := map[string]string{"OPCUA_DISCOVERY_URL": found.URL}
	for key, value := range map[string]string{
		"OPCUA_APPLICATION_URI": found.URI, "OPCUA_APPLICATION_NAME": found.Name,
		"OPCUA_SECURITY_POLICIES": strings.Join(policies, ","),
	} {
		if value != "" {
			properties[key] = value
		}
	}
	return &handler.Device{Id: found.URL, Properties: properties}
}

// ask asks all configured URLs and returns the answers that count.
func (s *search) ask(ctx context.Context, log *zap.Logger) map[string]answer {
	each(ctx, askWithin, s.wanted.urls, func(ctx context.Context, url string) {
		said, err := s.findServers(ctx, url)
		s.metrics.asked(err)
		switch news := s.answers.note(url, said, err); {
		case news && err != nil:
			log.Warn("an OPC UA server does not answer", zap.String("url", url), zap.Error(err))
		case news:
			log.Info("an OPC UA server answers", zap.String("url", url))
		}
	})
	return s.answers.current(s.patience)
}

func (s *search) findServers(ctx context.Context, url string) (said answer, err error) {
	tries := attempts
	if s.answers.isFresh(url, s.patience) {
		tries = 1
	}
	for range tries {
		if said.known, said.onNetwork, err = s.client.FindServers(ctx, url); err == nil {
			return said, nil
		}
		select {
		case <-ctx.Done():
			return said, err
		case <-time.After(pause):
		}
	}
	return said, err
}

// unlisted are the servers that were heard of on the network and are not registered: nothing but the URL is known of them.
func (a answer) unlisted() []string {
	listed := map[string]bool{}
	for _, one := range a.known {
		for _, url := range one.URLs {
			listed[url] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(a.onNetwork), func(url string) bool { return listed[url] })
}

// applications are those of an answer, and what the unlisted ones said of themselves.
func (s *search) applications(answer answer) []servers.Application {
	all := slices.Clone(answer.known)
	for _, url := range answer.unlisted() {
		if self := s.endpoints.get(url).self; self.URI != "" {
			self.URLs = []string{url}
			all = append(all, self)
		}
	}
	return all
}

// describe asks servers for their endpoints. What one said stays while it is silent.
func (s *search) describe(ctx context.Context, urls []string, within time.Duration) {
	due := map[string]bool{} // in no order: when there are too many for one round, all have their turn
	for _, url := range urls {
		if s.endpoints.isDue(url, describeEvery, describeAgain) {
			due[url] = true
		}
	}
	each(ctx, within, slices.Collect(maps.Keys(due)), func(ctx context.Context, url string) {
		var said endpoint
		var err error
		said.self, said.policies, err = s.client.Endpoints(ctx, url)
		s.endpoints.note(url, said, err)
	})
}

// resolve finds out which host names have addresses. A name server that does not answer changes nothing.
func (s *search) resolve(ctx context.Context, hosts []string) {
	names := slices.DeleteFunc(hosts, func(host string) bool {
		address := net.ParseIP(host) != nil
		if address {
			s.hosts.note(host, true, nil)
		}
		return address
	})
	each(ctx, lookUpWithin, names, func(ctx context.Context, host string) {
		addresses, err := s.lookUp(ctx, host)
		var unknown *net.DNSError
		if errors.As(err, &unknown) && unknown.IsNotFound {
			err = nil
		}
		s.hosts.note(host, len(addresses) > 0, err)
	})
}

// each calls do for every key, many at once, and waits. What does not begin within the time is not done.
func each(ctx context.Context, within time.Duration, keys []string, do func(context.Context, string)) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(atOnce)
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
