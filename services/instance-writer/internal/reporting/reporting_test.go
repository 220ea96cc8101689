package reporting_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/services/instance-writer/internal/reporting"
)

const grace = time.Minute

// lease is the Lease that the replicas share.
type lease struct {
	mu          sync.Mutex
	unreachable bool
	values      map[string]string
}

func (l *lease) share(_ context.Context, replica, value string, deleted []string) (map[string]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unreachable {
		return nil, errors.New("unreachable")
	}
	l.values[replica] = value
	for _, other := range deleted {
		delete(l.values, other)
	}
	return maps.Clone(l.values), nil
}

func (l *lease) setUnreachable(unreachable bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreachable = unreachable
}

func (l *lease) replicas() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.values)
}

// replica is an Observer in a cluster with the nodes a and b.
type replica struct {
	*reporting.Observer
	stop func()

	mu        sync.Mutex
	connected []string
	failing   map[string]uint8
	known     map[string]time.Time
	changes   int // of NotReporting
}

func start(t *testing.T, lease *lease, connected ...string) *replica {
	t.Helper()
	r := &replica{connected: connected}
	r.Observer = reporting.New(reporting.Options{
		Grace: grace, Share: lease.share, Log: zap.NewNop(),
		Connected: func() []string {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.connected)
		},
		Failing: func() map[string]uint8 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.failing
		},
		Nodes: func() []string { return []string{"a", "b"} },
		Observed: func(changed bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if known := r.NotReporting(); changed && !maps.Equal(known, r.known) {
				r.known = known
				r.changes++
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	r.stop = func() { cancel(); <-ended }
	return r
}

func (r *replica) connect(nodes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected = nodes
}

func (r *replica) fail(failing map[string]uint8) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = failing
}

// pass waits until the synthetic time has passed and all goroutines have handled it.
func pass(duration time.Duration) {
	<-time.After(duration)
	synctest.Wait()
}

func (r *replica) lost() []string { return slices.Sorted(maps.Keys(r.NotReporting())) }

func TestStreamsToOtherReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &lease{values: map[string]string{}}
		first, second := start(t, board, "a"), start(t, board, "b")
		defer first.stop()
		defer second.stop()
		pass(time.Hour)
		require.Empty(t, append(first.lost(), second.lost()...))
		require.Zero(t, first.changes+second.changes)

		// A node that opens its stream again, to another replica.
		second.connect()
		pass(grace / 2)
		first.connect("a", "b")
		pass(time.Hour)
		require.Empty(t, append(first.lost(), second.lost()...))

		before := time.Now()
		first.connect("a")
		pass(grace - time.Second)
		require.Empty(t, append(first.lost(), second.lost()...))
		pass(grace/2 + time.Second)
		for _, replica := range []*replica{first, second} {
			require.Equal(t, []string{"b"}, replica.lost())
			require.WithinRange(t, replica.NotReporting()["b"], before, before.Add(grace/2))
			require.Equal(t, 1, replica.changes)
		}
		second.connect("b")
		second.Reported("b")
		require.Empty(t, second.lost())
		pass(grace / 2)
		require.Empty(t, append(first.lost(), second.lost()...))
	})
}

// The nodes of a replica that has stopped have the grace period to find another one.
func TestReplicaStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &lease{values: map[string]string{}}
		first, second := start(t, board, "a"), start(t, board, "b")
		defer first.stop()
		pass(grace)
		second.stop()
		pass(grace)
		require.Empty(t, first.lost())
		pass(grace)
		require.Equal(t, []string{"b"}, first.lost())
		require.Equal(t, 1, board.replicas())
	})
}

func TestReplicaStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &lease{values: map[string]string{"broken": ""}})
		defer r.stop()
		pass(grace - time.Second)
		require.Empty(t, r.lost())
		r.connect("a")
		pass(2 * time.Second)
		require.Equal(t, []string{"b"}, r.lost())
	})
}

// While the API server cannot be reached, a replica cannot observe the nodes of others. The time
// does not count, neither for nodes that were absent before.
func TestLeaseUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &lease{values: map[string]string{}}
		first, second := start(t, board, "a"), start(t, board, "b")
		defer first.stop()
		defer second.stop()
		pass(grace)
		second.connect()
		pass(grace / 2)
		board.setUnreachable(true)
		pass(time.Hour)
		board.setUnreachable(false)
		pass(grace / 2)
		require.Equal(t, 2, board.replicas())
		second.connect("b")
		pass(time.Hour)
		require.Zero(t, first.changes+second.changes)
	})
}

// A node that moves to another replica reports all the time, even if no publication has it.
func TestNodeMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &lease{values: map[string]string{}}
		first, second := start(t, board, "a"), start(t, board)
		defer first.stop()
		defer second.stop()
		pass(grace)
		for _, replica := range []*replica{first, second} {
			require.True(t, replica.Settled())
			require.True(t, replica.Reporting("a"))
			require.False(t, replica.Reporting("b"))
		}
		first.connect()
		pass(grace - time.Second)
		require.True(t, first.Reporting("a"))
		second.connect("a")
		pass(time.Hour)
		require.True(t, first.Reporting("a"))
		second.connect()
		pass(2 * grace)
		require.False(t, first.Reporting("a"))
	})
}

// A replica without nodes does not count.
func TestFailingElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &lease{values: map[string]string{"earlier": "2026-01-01T00:00:00Z"}}
		first, second, third := start(t, board, "a"), start(t, board, "b"), start(t, board)
		defer first.stop()
		defer third.stop()
		require.EqualValues(t, 255, first.FailingElsewhere("uid"), "before the first observation")
		second.fail(map[string]uint8{"uid": 3})
		pass(grace)
		require.EqualValues(t, 3, first.FailingElsewhere("uid"))
		require.Zero(t, first.FailingElsewhere("other"))
		require.Zero(t, second.FailingElsewhere("uid"))
		require.Zero(t, third.FailingElsewhere("uid"), "it fails on the nodes of one of two replicas")
		first.fail(map[string]uint8{"uid": 6})
		pass(grace)
		require.EqualValues(t, 2, third.FailingElsewhere("uid"))
		second.stop()
		pass(grace)
		require.EqualValues(t, 6, third.FailingElsewhere("uid"))
		require.EqualValues(t, 255, first.FailingElsewhere("uid"))
	})
}

// Without the Lease, a replica settles with the nodes of its own.
func TestSettlesWithoutLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &lease{unreachable: true}, "a")
		defer r.stop()
		pass(grace - time.Second)
		require.False(t, r.Settled())
		pass(2 * time.Second)
		require.True(t, r.Settled())
	})
}
