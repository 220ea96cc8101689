package rpc

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

// Keep keeps a stream open until ctx ends: it calls open again each time it returns, after a
// backoff that grows from 50 ms to maxInterval, with jitter. open calls healthy once the stream
// works, which resets the backoff.
func Keep(ctx context.Context, logger *zap.Logger, maxInterval time.Duration, open func(ctx context.Context, healthy func()) error) {
	delays := NewBackOff(50*time.Millisecond, maxInterval)
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := open(ctx, func() { delays.Reset(); attempt = 1 })
		if ctx.Err() != nil {
			return
		}
		delay := delays.NextBackOff()
		logger.Debug("stream ended", zap.Error(err), zap.Int("attempt", attempt), zap.Duration("retry_in", delay))
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// NewBackOff returns an exponential backoff with jitter that never stops.
func NewBackOff(initialInterval, maxInterval time.Duration) *backoff.ExponentialBackOff {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = initialInterval, maxInterval
	return delays
}
