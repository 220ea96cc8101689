package cluster

import (
	"context"
	"fmt"
	"time"
)

// Wait calls check immediately and then at every interval until it returns nil. If ctx ends first,
// the error has check's last error.
func Wait(ctx context.Context, interval time.Duration, check func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
