package rpc

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

// warnAttempt is the attempt whose error is a warning: about two seconds after the first failure.
const warnAttempt = 6

// Keep keeps a stream open until ctx ends: it calls open again each time it returns, after a
// backoff that grows from 50 ms to maxInterval, with jitter. open calls healthy once the stream
// works, which resets the backoff. A stream that fails repeatedly is logged once as a warning.
func Keep(ctx context.Context, logger *zap.Logger, maxInterval time.Duration, open func(ctx context.Context, healthy func()) error) {
	delays := NewBackOff(50*time.Millisecond, maxInterval)
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := open(ctx, func() { delays.Reset(); attempt = 1 })
		if ctx.Err() != nil {
			return
		}
		delay := delays.NextBackOff()
		level, message := zap.DebugLevel, "stream ended"
		if attempt == warnAttempt {
			level, message = zap.WarnLevel, "opening a stream failed repeatedly, retrying"
		}
		logger.Log(level, message, zap.Error(err), zap.Int("attempt", attempt), zap.Duration("retry_in", delay))
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
