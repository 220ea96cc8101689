package cluster

import (
	"context"
	"fmt"
	"time"
)

// wait calls check at once and then every interval until it returns nil. When ctx ends first, it returns check's last reason.
func wait(ctx context.Context, interval time.Duration, check func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		reason := check()
		if reason == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), reason)
		case <-ticker.C:
		}
	}
}
