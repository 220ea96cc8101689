package mesh

import (
	"context"
	"fmt"
	"time"
)

const pollInterval = 25 * time.Millisecond

// Await calls check repeatedly until it returns nil. If ctx ends first, the error has check's last
// error.
func Await(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		case <-time.After(pollInterval):
		}
	}
}
