// Package discovery finds cameras by WS-Discovery and serves Discover streams with them.
package discovery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/handler/address"
	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

// batchDelay is the minimum time between two evaluations. Events in between are handled together.
const batchDelay = 10 * time.Millisecond

// Conn sends to and receives from the multicast groups.
type Conn interface {
	// Send sends the message on all interfaces and returns the number of successful sends.
	Send(message []byte) (int, error)
	// Receive calls handle for each datagram in order, until ctx ends.
	Receive(ctx context.Context, handle func(datagram []byte, from address.Origin)) error
	// Pending reports whether Receive has datagrams that are not handled yet.
	Pending() bool
}

// Options of a Prober.
type Options struct {
	// Options of the cache. Its interval is also the one between probe rounds.
	cameras.Options
	// Client calls cameras.
	Client *onvif.Client
	// UnverifiedClient calls endpoints that never answered. It is separate, so that they cannot
	// delay calls to cameras.
	UnverifiedClient *onvif.Client
	Metrics          Metrics
	Log              *zap.Logger
}

// Metrics of a Prober.
type Metrics struct {
	Cameras   prometheus.Gauge
	Probes    prometheus.Counter
	Datagrams *prometheus.CounterVec // by one of DatagramResults
}

const (
	handled   = "heard"
	ignored   = "ignored"
	malformed = "malformed"
)

// DatagramResults are the results of received datagrams.
var DatagramResults = []string{handled, ignored, malformed}

// Prober finds cameras for all Discover streams together. It sends probes and checks cameras only
// while there are subscribers.
type Prober struct {
	Options

	checksDue  broadcast.Signal
	subscribed broadcast.Signal

	mu              sync.Mutex
	cache           *cameras.Cache
	pending         func() bool // of the Conn
	subscribers     map[broadcast.Signal]bool
	burstStart      time.Time
	burstEnd        time.Time // zero until the first burst is complete
	lastUnsubscribe time.Time
	excessive       []string // hosts with too many cameras
	// addresses are those that cameras have reported to any stream, by UUID, for explanations.
	addresses map[string]onvif.Addresses
}

// NewProber returns a Prober.
func NewProber(options Options) *Prober {
	return &Prober{
		Options: options, checksDue: broadcast.NewSignal(), subscribed: broadcast.NewSignal(),
		cache: cameras.NewCache(options.Options), subscribers: map[broadcast.Signal]bool{}, addresses: map[string]onvif.Addresses{},
	}
}

// Run finds cameras until ctx ends.
func (p *Prober) Run(ctx context.Context, conn Conn) error {
	group, ctx := errgroup.WithContext(ctx)
	p.mu.Lock()
	p.pending = conn.Pending
	p.mu.Unlock()
	group.Go(func() error { return conn.Receive(ctx, p.receive) })
	group.Go(func() error { return p.probeLoop(ctx, conn) })
	group.Go(func() error { return p.checkLoop(ctx) })
	return group.Wait()
}

// subscribe returns a channel that receives after changes, until unsubscribe is called.
func (p *Prober) subscribe() (changed <-chan struct{}, unsubscribe func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subscribers) == 0 && time.Since(p.lastUnsubscribe) > p.Interval {
		p.burstEnd = time.Time{} // the cache is out of date
	}
	signal := broadcast.NewSignal()
	p.subscribers[signal] = true
	p.subscribed.Notify()
	p.checksDue.Notify()
	return signal, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subscribers, signal)
		p.lastUnsubscribe = time.Now()
	}
}

// publish notifies the subscribers. It reports whether there are any.
func (p *Prober) publish() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publishLocked()
	return len(p.subscribers) > 0
}

func (p *Prober) publishLocked() {
	found, excessive := p.cache.Cameras()
	p.Metrics.Cameras.Set(float64(len(found)))
	maps.DeleteFunc(p.addresses, func(uuid string, _ onvif.Addresses) bool {
		_, exists := slices.BinarySearchFunc(found, uuid, func(c cameras.Camera, uuid string) int { return strings.Compare(c.UUID, uuid) })
		return !exists
	})
	for _, host := range excessive {
		if !slices.Contains(p.excessive, host) {
			p.Log.Warn("too many cameras of one host, the newest are ignored", zap.String("host", host), zap.Int("limit", p.MaxPerHost))
		}
	}
	p.excessive = excessive
	for signal := range p.subscribers {
		signal.Notify()
	}
}

// cameras returns the current cameras. The list is complete if the timeout for answers to the
// probes is over and all endpoints were checked.
func (p *Prober) cameras(timeout time.Duration) (list []cameras.Camera, complete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	complete = !p.burstEnd.IsZero() && time.Since(p.burstEnd) >= timeout && !p.pending() &&
		p.cache.Pending(p.burstStart.Add(-p.Interval)) == 0
	list, _ = p.cache.Cameras()
	return list, complete
}

// reported records the addresses of a camera.
func (p *Prober) reported(uuid string, addresses onvif.Addresses) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addresses[uuid] = addresses
}

func (p *Prober) addressesOf(uuid string) onvif.Addresses {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addresses[uuid]
}

func (p *Prober) receive(datagram []byte, from address.Origin) {
	message, err := wsdiscovery.Parse(datagram)
	switch {
	case errors.Is(err, wsdiscovery.ErrIgnored):
		p.Metrics.Datagrams.WithLabelValues(ignored).Inc()
		return
	case err != nil:
		p.Metrics.Datagrams.WithLabelValues(malformed).Inc()
		p.Log.Debug("parsing datagram failed", zap.Stringer("endpoint", from.Addr), zap.Error(err))
		return
	}
	p.Metrics.Datagrams.WithLabelValues(handled).Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, endpoint := range message.Endpoints {
		if message.Kind == wsdiscovery.Bye {
			p.cache.Bye(endpoint.UUID, now)
			continue
		}
		p.cache.Announce(endpoint, message.Kind == wsdiscovery.Hello, from, now)
	}
	p.checksDue.Notify()
}

// sleep returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
