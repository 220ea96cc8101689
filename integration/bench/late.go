package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"akri.sh/integration/progress"
)

const (
	// lateAfter exceeds what a Pod takes by several times.
	lateAfter = 6 * time.Second
	// lateLines of each log cover more than the time of a round.
	lateLines = 400
)

// writeStateIfLate calls wait. If that takes longer than lateAfter, it writes the state of the
// cluster to files, meanwhile and afterwards. They show what the Pod has waited for.
func (b *bench) writeStateIfLate(ctx context.Context, wait func() error) error {
	var written error
	late := false
	write := func(elapsed time.Duration) {
		late = true
		if err := b.writeState(context.WithoutCancel(ctx), elapsed); err != nil {
			written = err
		}
	}

	started := time.Now()
	err := progress.While(lateAfter, write, wait)
	if late {
		write(time.Since(started))
	}
	return errors.Join(err, written)
}

// writeState writes a file beside the directory of the cluster, which is removed at the end.
func (b *bench) writeState(ctx context.Context, elapsed time.Duration) error {
	file, err := os.Create(fmt.Sprintf("%s-late-%s-%.0fs.txt", b.Dir, time.Now().Format("150405"), elapsed.Seconds()))
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	b.mesh.WriteState(ctx, file, lateLines)
	b.progress("a Pod is late, after %.1f s: the state of the cluster is in %s", elapsed.Seconds(), file.Name())
	return file.Close()
}
