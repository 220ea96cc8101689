// Package reporting observes which nodes have a report stream to any replica. The replicas publish
// the nodes of their streams to each other, and which Configurations do not work on any of them.
package reporting

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/sets"

	"akri.sh/libs/grace"
)

// Options of an Observer.
type Options struct {
	// Grace is how long a node may have no stream before it does not report. 0 disables the
	// Observer.
	Grace time.Duration
	// Share publishes the value of this replica, deletes the values of other replicas, and returns
	// the remaining values by replica.
	Share func(ctx context.Context, replica, value string, deleted []string) (map[string]string, error)
	// Connected returns the nodes with a stream to this replica.
	Connected func() []string
	// Failing returns a bit for each thing that works on no node of Connected, by uid of the
	// Configuration. It lacks Configurations without such a bit.
	Failing func() map[string]uint8
	// Nodes returns the nodes that exist.
	Nodes func() []string
	// Observed is called after each observation. changed means that the result of another method
	// has changed.
	Observed func(changed bool)
	Log      *zap.Logger
}

// Observer observes which nodes report. It counts time from its own observations: see package
// grace.
type Observer struct {
	Options

	replica string

	mu sync.Mutex
	// absent is the time since which a node has been without a stream.
	absent map[string]time.Time
	// notReporting are the nodes that have been absent for the grace period.
	notReporting map[string]time.Time
	// reporting are the nodes that have had a stream within the grace period.
	reporting sets.Set[string]
	// elsewhere has what fails on the nodes of each other replica.
	elsewhere []map[string]uint8
	settled   bool

	// The goroutine of Run owns the fields below.
	others   map[string]publication
	started  time.Time
	observed time.Time // the last observation
	failing  bool
}

// publication is the last value of another replica.
type publication struct {
	value string
	// since is when this replica first saw the value.
	since   time.Time
	nodes   []string
	failing map[string]uint8
}

// encode returns for example "2026-11-22T10:00:00Z node-a node-b 0d3e…=3". No name of a node
// contains the separator of what fails.
func encode(now time.Time, nodes []string, failing map[string]uint8) string {
	fields := append([]string{now.UTC().Format(time.RFC3339Nano)}, slices.Sorted(slices.Values(nodes))...)
	for _, uid := range slices.Sorted(maps.Keys(failing)) {
		fields = append(fields, fmt.Sprintf("%s=%x", uid, failing[uid]))
	}
	return strings.Join(fields, " ")
}

func decode(value string, now time.Time) publication {
	p := publication{value: value, since: now, failing: map[string]uint8{}}
	_, fields, _ := strings.Cut(value, " ")
	for field := range strings.FieldsSeq(fields) {
		uid, bits, ok := strings.Cut(field, "=")
		if !ok {
			p.nodes = append(p.nodes, field)
			continue
		}
		if parsed, err := strconv.ParseUint(bits, 16, 8); err == nil {
			p.failing[uid] = uint8(parsed)
		}
	}
	return p
}

// New returns an Observer. It starts nothing.
func New(options Options) *Observer {
	return &Observer{
		Options: options, replica: rand.Text(),
		absent: map[string]time.Time{}, notReporting: map[string]time.Time{}, reporting: sets.New[string](),
		others: map[string]publication{}, settled: options.Grace <= 0,
	}
}

// Run observes until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	if o.Grace <= 0 {
		return
	}
	o.started = time.Now()
	ticker := time.NewTicker(o.interval())
	defer ticker.Stop()
	for {
		o.observe(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// interval is the time between observations.
func (o *Observer) interval() time.Duration { return o.Grace / 6 }

// expiry is the time after which a replica that publishes nothing has stopped.
func (o *Observer) expiry() time.Duration { return 3 * o.interval() }

// NotReporting returns the nodes that do not report, and since when.
func (o *Observer) NotReporting() map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.notReporting)
}

// Reporting returns whether the node has had a stream to any replica within the grace period.
func (o *Observer) Reporting(node string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reporting.Has(node)
}

// Count returns the number of nodes that have had a stream to any replica within the grace period.
func (o *Observer) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reporting.Len()
}

// FailingElsewhere returns what works on no node of any other replica.
func (o *Observer) FailingElsewhere(uid string) uint8 {
	o.mu.Lock()
	defer o.mu.Unlock()
	failing := uint8(math.MaxUint8)
	for _, replica := range o.elsewhere {
		failing &= replica[uid]
	}
	return failing
}

// Settled returns whether this replica has observed for the grace period. Before, it does not know
// all nodes of other replicas, nor those that have lost their stream to one.
func (o *Observer) Settled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled
}

// Reported records that a node has reported to any replica.
func (o *Observer) Reported(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.absent, node)
	delete(o.notReporting, node)
	o.reporting.Insert(node)
}

// observe publishes the nodes of this replica and reads those of the others.
func (o *Observer) observe(ctx context.Context) {
	connected := o.Connected()
	value := encode(time.Now(), connected, o.Failing())
	// The values of other replicas are as old as the last observation.
	values, err := o.Share(ctx, o.replica, value, o.expired(o.observed))
	if err != nil {
		if !o.failing && ctx.Err() == nil {
			o.Log.Warn("observing which nodes report failed", zap.Error(err), zap.Duration("retry_in", o.interval()))
		}
		o.failing = true
		o.Observed(o.settle(time.Now()))
		return
	}
	o.failing = false
	now := time.Now()
	o.update(values, now)
	settled := o.settle(now)
	o.Observed(o.record(o.present(connected, now), now) || settled)
}

// settle reports whether the Observer is settled now and was not before.
func (o *Observer) settle(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled || now.Sub(o.started) < o.Grace {
		return false
	}
	o.settled = true
	return true
}

// update records the values of the other replicas.
func (o *Observer) update(values map[string]string, now time.Time) {
	maps.DeleteFunc(o.others, func(replica string, _ publication) bool { _, exists := values[replica]; return !exists })
	for replica, value := range values {
		if replica != o.replica && o.others[replica].value != value {
			o.others[replica] = decode(value, now)
		}
	}
}

// expired returns the replicas that have stopped.
func (o *Observer) expired(now time.Time) []string {
	var expired []string
	for replica, publication := range o.others {
		if now.Sub(publication.since) > o.expiry() {
			expired = append(expired, replica)
		}
	}
	return expired
}

// present returns the nodes with a stream to a replica that has not stopped.
func (o *Observer) present(connected []string, now time.Time) sets.Set[string] {
	present := sets.New(connected...)
	expired := o.expired(now)
	for replica, publication := range o.others {
		if !slices.Contains(expired, replica) {
			present.Insert(publication.nodes...)
		}
	}
	return present
}

// record updates what the methods return and reports whether that has changed.
func (o *Observer) record(present sets.Set[string], now time.Time) (changed bool) {
	elsewhere := o.failingElsewhere()
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.absent
	if now.Sub(o.observed) > o.expiry() {
		known = nil // the nodes may have had streams meanwhile
	}
	o.observed = now
	o.absent = map[string]time.Time{}
	notReporting, reporting := map[string]time.Time{}, present
	for _, node := range o.Nodes() {
		if present.Has(node) {
			continue
		}
		since, wasAbsent := known[node]
		if !wasAbsent {
			since = now
		}
		o.absent[node] = since
		stream := grace.Wait{Awaited: "the node opens a report stream", Since: since, For: o.Grace, Then: "it does not report"}
		switch {
		case stream.Over(now):
			notReporting[node] = since
		case o.reporting.Has(node):
			reporting.Insert(node)
		}
	}
	changed = !maps.Equal(notReporting, o.notReporting) || !reporting.Equal(o.reporting) ||
		!slices.EqualFunc(elsewhere, o.elsewhere, maps.Equal[map[string]uint8, map[string]uint8])
	o.notReporting, o.reporting, o.elsewhere = notReporting, reporting, elsewhere
	return changed
}

// failingElsewhere returns what fails on the nodes of each other replica that has nodes.
func (o *Observer) failingElsewhere() []map[string]uint8 {
	var elsewhere []map[string]uint8
	expired := o.expired(time.Now())
	for _, replica := range slices.Sorted(maps.Keys(o.others)) {
		if p := o.others[replica]; len(p.nodes) > 0 && !slices.Contains(expired, replica) {
			elsewhere = append(elsewhere, p.failing)
		}
	}
	return elsewhere
}
