package mesh

import (
	"context"
	"fmt"
	"time"
)

const lookEvery = 25 * time.Millisecond

// Await looks again and again until check returns nil, and says at the end of ctx what it last said.
func Await(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		case <-time.After(lookEvery):
		}
	}
}
