package work_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/services/instance-writer/internal/work"
)

func run(t *testing.T, do work.Do[string]) (*work.Queue[string], func()) {
	t.Helper()
	q := work.New("test", zap.NewNop(), do)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx, 2) }()
	return q, func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestWaitReturnsAfterTheKeyIsDoneAlsoWhenItFailsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		q, stop := run(t, func(context.Context, string) (time.Duration, error) {
			if calls.Add(1) < 3 {
				return 0, errors.New("not yet")
			}
			return 0, nil
		})
		defer stop()
		require.NoError(t, q.Ask([]string{"a"}).Wait(t.Context()))
		require.EqualValues(t, 3, calls.Load())
	})
}

func TestAKeyThatIsAskedForWhileItIsWorkedOnIsDoneOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		gate := make(chan struct{})
		q, stop := run(t, func(context.Context, string) (time.Duration, error) {
			calls.Add(1)
			<-gate
			return 0, nil
		})
		defer stop()
		first := q.Ask([]string{"a"})
		synctest.Wait()
		second := q.Ask([]string{"a"})
		q.Add("a")
		close(gate)
		require.NoError(t, first.Wait(t.Context()))
		require.NoError(t, second.Wait(t.Context()))
		require.EqualValues(t, 2, calls.Load())
	})
}

func TestAKeyIsDoneAgainWhenItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		start := time.Now()
		done := make(chan time.Duration, 1)
		q, stop := run(t, func(context.Context, string) (time.Duration, error) {
			if calls.Add(1) == 2 {
				done <- time.Since(start)
				return 0, nil
			}
			return time.Minute, nil
		})
		defer stop()
		q.Add("a")
		require.GreaterOrEqual(t, <-done, time.Minute)
	})
}

func TestThoseThatWaitAreToldWhenTheQueueStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stop := run(t, func(context.Context, string) (time.Duration, error) { return 0, errors.New("never") })
		asked := q.Ask([]string{"a"})
		synctest.Wait()
		stop()
		require.ErrorIs(t, asked.Wait(t.Context()), work.ErrStopped)
	})
}
