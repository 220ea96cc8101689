package rpc

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

// Keep runs a stream for as long as ctx lives: each time `open` returns it is called again, after a wait that grows
// from 50 ms to at most `longest` (with jitter). `open` calls `healthy` when the stream has proven itself, which starts
// the waits anew. Keep returns only when ctx ends.
func Keep(ctx context.Context, logger *zap.Logger, longest time.Duration, open func(ctx context.Context, healthy func()) error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = 50 * time.Millisecond
	wait.MaxInterval = longest
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := open(ctx, func() { wait.Reset(); attempt = 1 })
		if ctx.Err() != nil {
			return
		}
		pause := wait.NextBackOff()
		logger.Debug("stream ended", zap.Error(err), zap.Int("attempt", attempt), zap.Duration("retry_in", pause))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
