package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// lookAgain is the pause before a folder that another process has is tried again.
const lookAgain = 50 * time.Millisecond

// Own waits until no other process of this service has the folder, and has it until leave is called or the process
// ends. Of two at once, each would release slots by its own knowledge of what the kubelet gave away, and the kubelet
// would take the end of one for that of the other.
func (f *Folder) Own(ctx context.Context) (leave func(), err error) {
	for said := false; ; {
		leave, err = f.own()
		switch {
		case err == nil:
			return leave, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			if !said {
				f.log.Info("standing by: another device-plugin-host serves this kubelet")
				said = true
			}
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case !said: // the kubelet makes the folder when it comes
			f.log.Warn("waiting for the kubelet to make its folder of device plugins; is --kubelet-dir right?", zap.String("folder", f.path))
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}

// own locks the folder itself: whatever is in it the kubelet may remove.
func (f *Folder) own() (leave func(), err error) {
	folder, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("open the kubelet's folder: %w", err)
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("lock %s: %w", f.path, err)
	}
	return func() { _ = folder.Close() }, nil
}
