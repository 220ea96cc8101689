package onvif

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/soap"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

// repeats are the pauses before the first probes: datagrams get lost.
var repeats = []time.Duration{0, 200 * time.Millisecond, 300 * time.Millisecond}

// moment is the least time between two looks at everything: what happens meanwhile is seen at once.
const moment = 10 * time.Millisecond

// link is the network that cameras are on.
type link interface {
	// Send sends a message to all of them and returns on how many interfaces it went out.
	Send(message []byte) (int, error)
	// Receive calls hear with what they say, one datagram after the other, until ctx ends.
	Receive(ctx context.Context, hear func(datagram []byte, from netip.Addr)) error
	// Waiting tells whether something was received and not heard yet.
	Pending() bool
}

// census knows which cameras are there, for all Configurations together. It probes and checks only while someone
// wants to know.
type census struct {
	interval         time.Duration
	known, strangers *soap.Client // two, so that strangers who are slow do not hold up the cameras
	metrics          *metrics
	log              *zap.Logger
	due              chan struct{} // capacity 1: look for checks that are due
	wanted           chan struct{} // capacity 1: someone wants to know

	mu        sync.Mutex
	waiting   func() bool // of the link
	roster    *cameras.Cache
	followers map[chan struct{}]bool
	began     time.Time // of the last burst of probes
	probed    time.Time // its end; zero: not yet
	left      time.Time // when a follower stopped last
}

func newCensus(interval time.Duration, known, strangers *soap.Client, m *metrics, log *zap.Logger) *census {
	return &census{
		interval: interval, known: known, strangers: strangers, metrics: m, log: log,
		due: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
		roster: cameras.NewCache(interval), followers: map[chan struct{}]bool{},
	}
}

// follow returns a channel that tells of changes until stop is called.
func (c *census) follow() (changed <-chan struct{}, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.followers) == 0 && time.Since(c.left) > c.interval {
		c.probed = time.Time{} // what was known is old
	}
	follower := make(chan struct{}, 1)
	c.followers[follower] = true
	notify(c.wanted)
	notify(c.due)
	return follower, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.followers, follower)
		c.left = time.Now()
	}
}

// review has the followers see what changed without a check: scopes, or who owns an address. It returns whether there are any.
func (c *census) review() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell()
	return len(c.followers) > 0
}

// cameras returns who answers, and whether everyone had the time to answer the first probes and was checked.
func (c *census) cameras(timeout time.Duration) ([]cameras.Camera, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	complete := !c.probed.IsZero() && time.Since(c.probed) >= timeout && !c.waiting() &&
		c.roster.Pending(c.began.Add(-c.interval)) == 0
	return c.roster.Cameras(), complete
}

func (c *census) run(ctx context.Context, link link) error {
	group, ctx := errgroup.WithContext(ctx)
	c.mu.Lock()
	c.waiting = link.Pending
	c.mu.Unlock()
	group.Go(func() error { return link.Receive(ctx, c.hear) })
	group.Go(func() error { return c.probeAll(ctx, link) })
	group.Go(func() error { return c.checkAll(ctx) })
	return group.Wait()
}

func (c *census) hear(datagram []byte, from netip.Addr) {
	message, err := wsdiscovery.Parse(datagram)
	switch {
	case errors.Is(err, wsdiscovery.ErrIgnored):
		c.metrics.datagrams.WithLabelValues(ignored).Inc()
		return
	case err != nil:
		c.metrics.datagrams.WithLabelValues(malformed).Inc()
		c.log.Debug("read datagram", zap.Stringer("endpoint", from), zap.Error(err))
		return
	}
	c.metrics.datagrams.WithLabelValues(heard).Inc()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, endpoint := range message.Endpoints {
		if message.Kind == wsdiscovery.Bye {
			c.roster.Bye(endpoint.UUID, now)
			continue
		}
		c.roster.Announce(endpoint, message.Kind == wsdiscovery.Hello, from, now)
	}
	notify(c.due)
}

// probeAll probes for both types, several times at first and for one of them in turn afterwards.
func (c *census) probeAll(ctx context.Context, link link) error {
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for turn := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wanted:
			if c.needsBurst() {
				c.burst(ctx, link)
				ticker.Reset(c.interval)
			}
		case <-ticker.C:
			if c.review() {
				c.probe(link, wsdiscovery.Types[turn%len(wsdiscovery.Types)])
				turn++
			}
		}
	}
}

func (c *census) needsBurst() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.probed.IsZero() {
		return false
	}
	c.began = time.Now()
	return true
}

func (c *census) burst(ctx context.Context, link link) {
	for _, pause := range repeats {
		if !wait(ctx, pause) {
			return
		}
		for _, kind := range wsdiscovery.Types {
			c.probe(link, kind)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probed = time.Now()
	c.tell()
}

func (c *census) probe(link link, kind wsdiscovery.Type) {
	// A new id each time: a device drops a question that it answered already, although its answer may be lost.
	sent, err := link.Send(wsdiscovery.Probe(kind))
	if err != nil || sent == 0 {
		c.log.Warn("probe: no interface to send on", zap.Error(err))
		return
	}
	c.metrics.probes.Inc()
}

// checkAll does the checks that are due, all at once: the clients keep to their limits.
func (c *census) checkAll(ctx context.Context) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.due:
		case <-timer.C:
		}
		due, next := c.takeDue()
		for _, check := range due {
			checks.Go(func() { c.settle(ctx, check, c.check(ctx, check)) })
		}
		timer.Reset(next)
		wait(ctx, moment)
	}
}

// takeDue returns the checks to do now and when to look again.
func (c *census) takeDue() ([]cameras.Check, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.followers) == 0 {
		return nil, time.Hour // until someone follows
	}
	due := c.roster.Due(time.Now())
	if next, ok := c.roster.Next(); ok {
		return due, max(time.Until(next), 0)
	}
	return due, time.Hour
}

// check asks at one address after the other. A device that wants credentials even for its time is there.
func (c *census) check(ctx context.Context, check cameras.Check) cameras.Result {
	client := c.strangers
	if check.Verified {
		client = c.known
	}
	for _, url := range check.URLs {
		offset, err := client.ClockOffset(ctx, soap.Target{URL: url, Zone: check.Zone})
		if err == nil || errors.Is(err, soap.ErrNotAuthorized) {
			return cameras.Result{URL: url, ClockOffset: offset}
		}
		c.log.Debug("check camera", zap.String("device_id", check.UUID), zap.String("endpoint", url), zap.Error(err))
	}
	return cameras.Result{}
}

func (c *census) settle(ctx context.Context, check cameras.Check, answer cameras.Result) {
	if ctx.Err() != nil {
		return // the question was cut short
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roster.Complete(check, answer, time.Now()) {
		c.tell()
	}
	notify(c.due)
}

// tell wakes the followers; the caller holds the lock.
func (c *census) tell() {
	c.metrics.cameras.Set(float64(len(c.roster.Cameras())))
	for follower := range c.followers {
		notify(follower)
	}
}

func notify(channel chan<- struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
