// Package coordinator runs the Discover sessions of all Configurations and builds the inventory of
// the node.
package coordinator

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/grace"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/discovery-operator/internal/configurations"
	"akri.sh/services/discovery-operator/internal/devicenodes"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

const (
	// maxInterval is the longest time between two passes over all Configurations.
	maxInterval = time.Hour
	// DiskInterval is the same while devices are disks: the node may begin to use one.
	DiskInterval = 10 * time.Second
)

// Options of a Coordinator.
type Options struct {
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Node    string
	// ProbeInterval is the time between two probes of an endpoint that is used.
	ProbeInterval  time.Duration
	DiskInterval   time.Duration
	Dial           discovery.Dialer // see discovery.Target
	Configurations *configurations.Client
	Registrar      *grpc.ClientConn
	Discoverer     *discovery.Discoverer
	Host           devicenodes.Host
	// Inventory gets each new state.
	Inventory *broadcast.Value[inventory.Snapshot]
}

// Coordinator reconciles Configurations and handlers. One goroutine makes all decisions from the
// current state; events only choose what it reconciles.
type Coordinator struct {
	Options
	pending *pending
	table   broadcast.Value[*registrarv1.WatchHandlersResponse] // nil until the registrar has sent it
	reports broadcast.Value[[]*registrarv1.HandlerReport]
	unused  broadcast.Value[[]unusedTarget]
	probed  broadcast.Value[*probeResults]
	// appeared is set when the socket of an unused endpoint has appeared.
	appeared broadcast.Signal

	// The loop goroutine owns the fields below.
	handlers  *registrarv1.WatchHandlersResponse // the table that was adopted
	results   *probeResults                      // the results that were applied
	endpoints endpoints
	sessions  map[string]*sessionSet // by key of the Configuration
	entries   map[string]*inventory.Entry
	changed   bool       // entries differ from the published ones
	next      grace.Next // pass over all Configurations
}

// New returns a Coordinator. It starts nothing.
func New(options Options) *Coordinator {
	pending := newPending()
	c := &Coordinator{
		Options: options, pending: pending, appeared: broadcast.NewSignal(),
		sessions: map[string]*sessionSet{}, entries: map[string]*inventory.Entry{},
	}
	c.endpoints = endpoints{
		log: options.Log, metrics: options.Metrics, grace: options.Discoverer.Grace, probeInterval: options.ProbeInterval,
		dial: options.Dial, notify: pending.Notify, next: &c.next, byKey: map[endpointKey]*endpoint{},
	}
	c.Configurations.OnChange(pending.add)
	return c
}

// Run works until ctx ends, then ends all streams.
func (c *Coordinator) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { c.Configurations.Run(ctx); return nil })
	group.Go(func() error { c.watchHandlers(ctx); return nil })
	group.Go(func() error { c.reportStatuses(ctx); return nil })
	group.Go(func() error { c.probeUnused(ctx); return nil })
	group.Go(func() error {
		// Before the first snapshot, a missing Configuration does not mean that it was deleted.
		select {
		case <-ctx.Done():
		case <-c.Configurations.Received():
			c.loop(ctx)
		}
		return nil
	})
	return group.Wait()
}

func (c *Coordinator) loop(ctx context.Context) {
	defer c.endpoints.stop()
	defer c.stopAll()
	all := true
	for {
		if all {
			c.next = grace.Next{At: time.Now().Add(maxInterval)}
		}
		table, tableChanged := c.table.Get()
		c.pass(ctx, table, all, time.Now())
		all = false
		select {
		case <-ctx.Done():
			return
		case <-c.pending.Signal:
		case <-tableChanged:
		case <-time.After(time.Until(c.next.At)):
			all = true
		}
	}
}

// pass reconciles the pending Configurations. It also reconciles all others if all is true or
// if handlers changed.
func (c *Coordinator) pass(ctx context.Context, table *registrarv1.WatchHandlersResponse, all bool, now time.Time) {
	keys := c.pending.take()
	if results, _ := c.probed.Get(); results != c.results {
		c.results = results
		c.endpoints.setProbed(results, now)
	}
	adopted, removed, replaced := c.adopt(table, now), c.endpoints.removeGone(now), c.endpoints.replaceGone(now)
	if c.endpoints.lookAtSockets(now) {
		c.appeared.Notify()
	}
	if all || adopted || removed || replaced {
		keys = append(keys, c.Configurations.Keys()...)
	}
	done := map[string]bool{}
	for _, key := range keys {
		if !done[key] {
			done[key] = true
			c.reconcile(ctx, key, now)
		}
	}
	c.publish()
	c.Configurations.SetHandlers(c.endpoints.handlers())
	c.unused.Set(c.endpoints.unused())
	c.reports.Set(c.endpoints.reports(now))
}

// adopt applies a new table of the registrar and returns whether it is new.
func (c *Coordinator) adopt(table *registrarv1.WatchHandlersResponse, now time.Time) bool {
	if table == c.handlers {
		return false
	}
	if c.handlers == nil {
		now = time.Time{}
	}
	c.handlers = table
	for _, key := range c.endpoints.adopt(table.GetHandlers(), now) {
		for _, sessions := range c.sessions {
			sessions.retry(key)
		}
	}
	return true
}

func (c *Coordinator) reconcile(ctx context.Context, key string, now time.Time) {
	configuration := c.Configurations.Get(key)
	if configuration == nil {
		c.stopSessions(key)
		c.removeEntry(key)
		return
	}
	if configuration.GetNameTaken() || configuration.GetNodeNotAllowed() {
		c.stopSessions(key)
		c.setEntry(inventory.BuildWithoutDevices(configuration))
		return
	}
	sessions := c.updateSessions(ctx, key, configuration)
	sources := sessions.sources()
	c.checkDeviceNodes(sources, now)
	c.setEntry(inventory.Build(inventory.Input{
		Node: c.Node, Configuration: configuration, Sources: sources,
		Registered: c.endpoints.names(), HandlersSynced: c.handlers != nil,
		Unregistered: c.unregistered(sessions, sources, now), Grace: c.Discoverer.Grace, Policy: c.Discoverer.Policy,
	}))
}

// checkDeviceNodes removes the devices whose device nodes must not be offered now.
func (c *Coordinator) checkDeviceNodes(sources []inventory.Source, now time.Time) {
	if inventory.HaveDeviceNodes(sources) && c.Discoverer.Policy.CheckDeviceNodes(sources, c.Host.Read()) {
		c.next.Include(now.Add(c.DiskInterval))
	}
}

func (c *Coordinator) setEntry(entry *inventory.Entry) {
	previous := c.entries[entry.Key]
	if previous != nil && proto.Equal(previous.Report, entry.Report) {
		return
	}
	c.entries[entry.Key] = entry
	c.changed = true
}

func (c *Coordinator) removeEntry(key string) {
	if c.entries[key] != nil {
		delete(c.entries, key)
		c.changed = true
	}
}

// publish publishes the entries after the first pass and after each pass that changed them.
func (c *Coordinator) publish() {
	if current, _ := c.Inventory.Get(); current.Ready && !c.changed {
		return
	}
	c.changed = false
	snapshot := inventory.Snapshot{Ready: true}
	for _, key := range slices.Sorted(maps.Keys(c.entries)) {
		snapshot.Entries = append(snapshot.Entries, c.entries[key])
	}
	c.Inventory.Set(snapshot)
}

// pending is the set of the keys of the Configurations to reconcile. The Signal wakes the loop,
// which takes all keys at once. A workqueue cannot be waited for together with other channels.
type pending struct {
	broadcast.Signal

	mu   sync.Mutex
	keys map[string]struct{}
}

func newPending() *pending {
	return &pending{Signal: broadcast.NewSignal(), keys: map[string]struct{}{}}
}

func (p *pending) add(key string) {
	p.mu.Lock()
	p.keys[key] = struct{}{}
	p.mu.Unlock()
	p.Notify()
}

// take returns the keys, sorted, and empties the set.
func (p *pending) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := slices.Sorted(maps.Keys(p.keys))
	clear(p.keys)
	return keys
}
