package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Wait calls check immediately and then at every interval until it returns nil. If ctx ends first,
// the error has check's last error. An error that only states the end of ctx does not count.
func Wait(ctx context.Context, interval time.Duration, check func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
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
		case <-ticker.C:
		}
	}
}
