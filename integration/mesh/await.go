package mesh

import (
	"context"
	"fmt"
	"time"

	"akri.sh/integration/cluster"
)

const pollInterval = 25 * time.Millisecond

// Await calls check repeatedly until it returns nil. If ctx ends first, the error has check's last
// error.
func Await(ctx context.Context, what string, check func(context.Context) error) error {
	if err := cluster.Wait(ctx, pollInterval, func() error { return check(ctx) }); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
