package debugecho

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// longest is how much of the availability file is read.
const longest = 64 << 10

// offline tells whether the file takes the devices away. A file that cannot be read does not.
func offline(file string) bool {
	opened, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = opened.Close() }()
	content, err := io.ReadAll(io.LimitReader(opened, longest))
	return err == nil && bytes.Contains(content, []byte("OFFLINE"))
}

// watchFile tells through a channel of capacity 1 that the file may have changed. It watches the folder, because the
// file need not exist. Where watching is impossible the channel stays silent.
func watchFile(ctx context.Context, file string, log *zap.Logger) <-chan struct{} {
	changed := make(chan struct{}, 1)
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(filepath.Dir(file)); err != nil {
			err = errors.Join(err, watcher.Close())
		}
	}
	if err != nil {
		log.Warn("watch availability file; changes take longer to be seen", zap.Error(err))
		return changed
	}
	go func() {
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-watcher.Events:
				if filepath.Base(event.Name) == filepath.Base(file) {
					notify(changed)
				}
			case err := <-watcher.Errors:
				log.Debug("watch availability file", zap.Error(err))
				notify(changed) // events were lost
			}
		}
	}()
	return changed
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
