package slots

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

// ErrLocked means that another process manages the slots of device plugins on this node.
var ErrLocked = errors.New("another process manages the slots of device plugins")

// Lock waits until no other process manages the slots of device plugins on this node. dir is the
// kubelet's directory of device plugins. The process manages them until unlock is called or the
// process ends. Two such processes would interfere: each releases slots by its own view of what the
// kubelet allocated, and the kubelet takes the end of one plugin for the end of the other's plugin
// of the same resource.
func Lock(ctx context.Context, dir string, log *zap.Logger) (unlock func(), err error) {
	var logOnce sync.Once
	return backoff.Retry(ctx, func() (func(), error) {
		unlock, err := TryLock(dir)
		switch {
		case errors.Is(err, ErrLocked):
			logOnce.Do(func() {
				log.Info("standing by until no other process manages the slots of device plugins on this node")
			})
		case errors.Is(err, fs.ErrNotExist): // the kubelet creates the directory when it starts
			logOnce.Do(func() {
				log.Warn("waiting for the kubelet to create its device plugin directory; check --kubelet-dir",
					zap.String("directory", dir))
			})
		case err != nil:
			return nil, backoff.Permanent(err)
		}
		return unlock, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(lockInterval)), backoff.WithMaxElapsedTime(0))
}

// TryLock is Lock without the wait: it returns ErrLocked if another process manages the slots. It
// locks the directory itself, because the kubelet may remove any file in it.
func TryLock(dir string) (unlock func(), err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open device plugin directory: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { _ = file.Close() }, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", dir, err)
}
