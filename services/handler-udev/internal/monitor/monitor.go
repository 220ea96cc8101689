// Package monitor reports changes of devices. It receives uevents of the kernel and of udevd, and
// watches the udev database.
package monitor

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Handler receives the changes. A devpath is the path of a device without /sys.
type Handler interface {
	// Changed reports that the device is new or different.
	Changed(devpath string)
	// Removed reports that the device was removed. Sysfs may still show it for a moment.
	Removed(devpath string)
	// Resync reports that any device may have changed.
	Resync()
}

// Monitor passes changes to its Handler.
type Monitor struct {
	Handler Handler
	// DatabaseDir is the directory of the udev database.
	DatabaseDir string
	// Devpath returns the devpath of the device that a file of the database describes.
	Devpath func(id string) (devpath string, ok bool)
	// CountLost is called when events were lost.
	CountLost func()
	Log       *zap.Logger
}

// Run reports changes until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.receiveUevents(ctx) })
	group.Go(func() error { m.watchDatabase(ctx); return nil })
	return group.Wait()
}

func (m *Monitor) receiveUevents(ctx context.Context) error {
	socket, err := Listen()
	if err != nil {
		m.Log.Warn("opening the uevent socket failed; only the periodic resync detects changes", zap.Error(err))
		return nil
	}
	m.Handler.Resync() // for changes before the first event
	return socket.Receive(ctx, func(event Event, err error) {
		switch {
		case err != nil:
			m.CountLost()
			m.Handler.Resync()
		case event.Action == "remove":
			m.Handler.Removed(event.Devpath)
		default:
			m.Handler.Changed(event.Devpath)
			if event.OldDevpath != "" {
				m.Handler.Changed(event.OldDevpath)
			}
		}
	})
}

// watchDatabase watches the files that udevd writes. The events of udevd stay in its own network
// namespace, which a Pod usually does not share; the files are visible everywhere.
func (m *Monitor) watchDatabase(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		err = watcher.Add(m.DatabaseDir)
	}
	if err != nil {
		m.Log.Info("watching the udev database failed; only the periodic resync updates its properties", zap.Error(err))
		return
	}
	m.Handler.Resync()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) || event.Has(fsnotify.Write) {
				m.databaseChanged(filepath.Base(event.Name))
			}
		case err := <-watcher.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				m.CountLost()
			}
			m.Handler.Resync()
		}
	}
}

// databaseChanged handles a change of the file with the device id as its name. udevd writes to a
// file with a leading dot before it renames it.
func (m *Monitor) databaseChanged(id string) {
	if strings.HasPrefix(id, ".") {
		return
	}
	if devpath, ok := m.Devpath(id); ok {
		m.Handler.Changed(devpath)
	}
}
