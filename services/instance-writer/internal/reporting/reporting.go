// Package reporting observes which nodes have a report stream to any replica. The replicas publish
// the nodes of their streams to each other.
package reporting

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/sets"
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
	// Nodes returns the nodes that exist.
	Nodes func() []string
	// Observed is called after each observation. changed means that the result of NotReporting is
	// another one.
	Observed func(changed bool)
	Log      *zap.Logger
}

// Observer observes which nodes report. It counts time from its own observations, because the
// clocks of other machines may be wrong.
type Observer struct {
	Options

	replica string

	mu sync.Mutex
	// absent is the time since which a node has been without a stream.
	absent map[string]time.Time
	// notReporting are the nodes that have been absent for the grace period.
	notReporting map[string]time.Time

	// The goroutine of Run owns the fields below.
	others   map[string]publication
	observed time.Time // the last observation
	failing  bool
}

// publication is the last value of another replica.
type publication struct {
	value string
	// since is when this replica first saw the value.
	since time.Time
}

// New returns an Observer. It starts nothing.
func New(options Options) *Observer {
	return &Observer{
		Options: options, replica: rand.Text(),
		absent: map[string]time.Time{}, notReporting: map[string]time.Time{}, others: map[string]publication{},
	}
}

// Run observes until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	if o.Grace <= 0 {
		return
	}
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

// Reported records that a node has reported to any replica.
func (o *Observer) Reported(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.absent, node)
	delete(o.notReporting, node)
}

// observe publishes the nodes of this replica and reads those of the others.
func (o *Observer) observe(ctx context.Context) {
	connected := o.Connected()
	slices.Sort(connected)
	value := time.Now().UTC().Format(time.RFC3339Nano) + " " + strings.Join(connected, " ")
	// The values of other replicas are as old as the last observation.
	values, err := o.Share(ctx, o.replica, value, o.expired(o.observed))
	if err != nil {
		if !o.failing && ctx.Err() == nil {
			o.Log.Warn("observing which nodes report failed", zap.Error(err), zap.Duration("retry_in", o.interval()))
		}
		o.failing = true
		return
	}
	o.failing = false
	now := time.Now()
	o.update(values, now)
	o.Observed(o.record(o.present(connected, now), now))
}

// update records the values of the other replicas.
func (o *Observer) update(values map[string]string, now time.Time) {
	maps.DeleteFunc(o.others, func(replica string, _ publication) bool { _, exists := values[replica]; return !exists })
	for replica, value := range values {
		if replica != o.replica && o.others[replica].value != value {
			o.others[replica] = publication{value, now}
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
			_, nodes, _ := strings.Cut(publication.value, " ")
			present.Insert(strings.Fields(nodes)...)
		}
	}
	return present
}

// record updates which nodes are absent and reports whether other nodes than before do not report.
func (o *Observer) record(present sets.Set[string], now time.Time) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.absent
	if now.Sub(o.observed) > o.expiry() {
		known = nil // the nodes may have had streams meanwhile
	}
	o.observed = now
	o.absent = map[string]time.Time{}
	notReporting := map[string]time.Time{}
	for _, node := range o.Nodes() {
		if present.Has(node) {
			continue
		}
		since, wasAbsent := known[node]
		if !wasAbsent {
			since = now
		}
		o.absent[node] = since
		if now.Sub(since) >= o.Grace {
			notReporting[node] = since
		}
	}
	changed = !maps.Equal(notReporting, o.notReporting)
	o.notReporting = notReporting
	return changed
}
