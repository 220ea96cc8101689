package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

const lockInterval = 50 * time.Millisecond

// Lock waits until no other process of this service holds the directory. It holds the directory
// until unlock is called or the process ends. Two active processes would interfere: each releases
// slots by its own view of what the kubelet allocated, and the kubelet takes the end of one plugin
// for the end of the other's plugin of the same resource.
func (d *SocketDir) Lock(ctx context.Context) (unlock func(), err error) {
	var logOnce sync.Once
	return backoff.Retry(ctx, func() (func(), error) {
		unlock, err := d.tryLock()
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			logOnce.Do(func() {
				d.log.Info("standing by until the other device-plugin-host process on this node ends")
			})
		case errors.Is(err, fs.ErrNotExist): // the kubelet creates the directory when it starts
			logOnce.Do(func() {
				d.log.Warn("waiting for the kubelet to create its device plugin directory; check --kubelet-dir",
					zap.String("directory", d.path))
			})
		case err != nil:
			return nil, backoff.Permanent(err)
		}
		return unlock, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(lockInterval)), backoff.WithMaxElapsedTime(0))
}

// tryLock locks the directory itself, because the kubelet may remove any file in it.
func (d *SocketDir) tryLock() (unlock func(), err error) {
	dir, err := os.Open(d.path)
	if err != nil {
		return nil, fmt.Errorf("open device plugin directory: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock %s: %w", d.path, err)
	}
	return func() { _ = dir.Close() }, nil
}
