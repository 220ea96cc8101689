package cluster //nolint:testpackage // apiHealth is not exported

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The connection is probed only while no response arrives, and is lost until the API server answers
// again.
func TestAPIHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disconnected atomic.Bool
		var probes atomic.Int64
		health := newAPIHealth(func(ctx context.Context) error {
			probes.Add(1)
			if disconnected.Load() {
				<-ctx.Done()
				return errors.New("no answer")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go health.run(ctx)
		for range 60 {
			<-time.After(time.Second)
			health.contacted()
		}
		require.Zero(t, probes.Load(), "a connection in use is not probed")
		<-time.After(time.Minute)
		require.NoError(t, health.check())
		require.LessOrEqual(t, probes.Load(), int64(12))

		disconnected.Store(true)
		<-time.After(13 * time.Second)
		require.Error(t, health.check())
		require.False(t, closed(health.connectionLost()))
		<-time.After(13 * time.Second)
		require.True(t, closed(health.connectionLost()))

		disconnected.Store(false)
		<-time.After(6 * time.Second)
		require.NoError(t, health.check())
		require.False(t, closed(health.connectionLost()))
	})
}
