package pulse_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/services/instance-writer/internal/pulse"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSilenceIsNoticedAndThenHeldAgainstItUntilItIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		var asked atomic.Int64
		p := pulse.New(func(ctx context.Context) error {
			asked.Add(1)
			if cut.Load() {
				<-ctx.Done()
				return errors.New("no answer")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		for range 60 {
			time.Sleep(time.Second) //nolint:forbidigo // the time of synctest
			p.Heard()
		}
		require.Zero(t, asked.Load(), "who speaks is not asked")
		time.Sleep(time.Minute) //nolint:forbidigo // the time of synctest
		require.NoError(t, p.Silent())
		require.LessOrEqual(t, asked.Load(), int64(12), "now and then")

		cut.Store(true)
		time.Sleep(13 * time.Second) //nolint:forbidigo // the time of synctest
		require.Error(t, p.Silent())
		require.False(t, closed(p.Lost()))
		time.Sleep(13 * time.Second) //nolint:forbidigo // the time of synctest
		require.True(t, closed(p.Lost()))

		cut.Store(false)
		time.Sleep(6 * time.Second) //nolint:forbidigo // the time of synctest
		require.NoError(t, p.Silent())
		require.False(t, closed(p.Lost()))
	})
}
