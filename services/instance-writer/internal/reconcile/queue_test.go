package reconcile //nolint:testpackage // the queue is not exported

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func runQueue(t *testing.T, process processFunc[string]) (q *queue[string], stop func()) {
	t.Helper()
	q = newQueue("test", zap.NewNop(), process)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.run(ctx, 2) })
	return q, func() {
		cancel()
		running.Wait()
	}
}

func TestWaitIncludesRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		q, stop := runQueue(t, func(context.Context, string) (time.Duration, error) {
			if calls.Add(1) < 3 {
				return 0, errors.New("not yet")
			}
			return 0, nil
		})
		defer stop()
		require.NoError(t, q.addAndWait(t.Context(), []string{"a"}).Wait(t.Context()))
		require.EqualValues(t, 3, calls.Load())
	})
}

// Several additions of a key that is being processed lead to one more run.
func TestAddDuringProcessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		gate := make(chan struct{})
		q, stop := runQueue(t, func(context.Context, string) (time.Duration, error) {
			calls.Add(1)
			<-gate
			return 0, nil
		})
		defer stop()
		first := q.addAndWait(t.Context(), []string{"a"})
		synctest.Wait()
		second := q.addAndWait(t.Context(), []string{"a"})
		q.add("a")
		close(gate)
		require.NoError(t, first.Wait(t.Context()))
		require.NoError(t, second.Wait(t.Context()))
		require.EqualValues(t, 2, calls.Load())
	})
}

// A key that is postponed is not answered before it has been processed.
func TestPostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q, stop := runQueue(t, func(context.Context, string) (time.Duration, error) {
			if elapsed := time.Since(start); elapsed < time.Second {
				return 0, postponedError{time.Second - elapsed}
			}
			return 0, nil
		})
		defer stop()
		first := q.addAndWait(t.Context(), []string{"a"})
		synctest.Wait()
		second := q.addAndWait(t.Context(), []string{"a"})
		require.NoError(t, first.Wait(t.Context()))
		require.NoError(t, second.Wait(t.Context()))
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		start := time.Now()
		elapsed := make(chan time.Duration, 1)
		q, stop := runQueue(t, func(context.Context, string) (time.Duration, error) {
			if calls.Add(1) == 2 {
				elapsed <- time.Since(start)
				return 0, nil
			}
			return time.Minute, nil
		})
		defer stop()
		q.add("a")
		require.GreaterOrEqual(t, <-elapsed, time.Minute)
	})
}

func TestWaitEndsWhenQueueStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stop := runQueue(t, func(context.Context, string) (time.Duration, error) { return 0, errors.New("never") })
		waiter := q.addAndWait(t.Context(), []string{"a"})
		synctest.Wait()
		stop()
		require.ErrorIs(t, waiter.Wait(t.Context()), ErrStopped)
	})
}
