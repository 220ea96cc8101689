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

	"akri.sh/libs/broadcast"
)

// maxFileBytes is how much of the availability file is read.
const maxFileBytes = 64 << 10

// offline reports whether the file makes the devices unavailable. A file that cannot be read does
// not.
func offline(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes))
	return err == nil && bytes.Contains(content, []byte("OFFLINE"))
}

// watchFile returns a signal that is set when the file may have changed. It watches the directory,
// because the file need not exist. If watching fails, the signal is never set.
func watchFile(ctx context.Context, path string, log *zap.Logger) broadcast.Signal {
	changed := broadcast.NewSignal()
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(filepath.Dir(path)); err != nil {
			err = errors.Join(err, watcher.Close())
		}
	}
	if err != nil {
		log.Warn("watching the availability file failed; polling instead", zap.Error(err), zap.Duration("interval", resyncInterval))
		return changed
	}
	go func() {
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-watcher.Events:
				if filepath.Base(event.Name) == filepath.Base(path) {
					changed.Notify()
				}
			case err := <-watcher.Errors:
				log.Debug("watching the availability file failed", zap.Error(err))
				changed.Notify() // events may be lost
			}
		}
	}()
	return changed
}
