package rpc

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

// warnAttempt is the attempt whose error is a warning: about two seconds after the first failure.
const warnAttempt = 6

// Keep keeps a stream open until ctx ends: it calls open again each time it returns, after a
// backoff that grows from 50 ms to maxInterval, with jitter. open calls healthy once the stream
// works. A stream that has worked for maxInterval resets the backoff, so that clients do not
// overload a server that fails soon after each start. A stream that fails repeatedly is logged once
// as a warning.
func Keep(ctx context.Context, logger *zap.Logger, maxInterval time.Duration, open func(ctx context.Context, healthy func()) error) {
	delays := NewBackOff(50*time.Millisecond, maxInterval)
	for attempt := 1; ctx.Err() == nil; attempt++ {
		var since time.Time
		err := open(ctx, sync.OnceFunc(func() { since = time.Now(); attempt = 1 }))
		if ctx.Err() != nil {
			return
		}
		if !since.IsZero() && time.Since(since) >= maxInterval {
			delays.Reset()
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
