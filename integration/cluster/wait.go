package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pause returns nil after d, or the reason of the end of ctx if that is earlier.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Wait calls check immediately and then, with pauses between the calls, until it returns nil. If
// ctx ends first, the error has check's last error. An error that only states the end of ctx does
// not count.
func Wait(ctx context.Context, pause time.Duration, check func() error) error {
	var last error
	for {
		err := check()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) { // an error of the ended ctx hides the reason
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(pause):
		}
	}
}
