package udev

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"akri.sh/services/handler-udev/internal/uevent"
)

// hearKernel passes uevents on. Where there can be none the periodic look must do.
func (s *Service) hearKernel(ctx context.Context) error {
	socket, err := uevent.Listen()
	if err != nil {
		s.log.Warn("hear uevents; changes are seen at the next resync", zap.Error(err))
		return nil
	}
	s.inventory.Resync() // what changed before the first event
	return socket.Receive(ctx, func(event uevent.Event, err error) {
		switch {
		case err != nil:
			s.metrics.Lost()
			s.inventory.Resync()
		case event.Action == "remove":
			s.inventory.Gone(event.Devpath)
		default:
			s.inventory.Changed(event.Devpath)
			if event.OldDevpath != "" {
				s.inventory.Changed(event.OldDevpath)
			}
		}
	})
}

// hearDatabase follows the files that udev writes about each device. Its events stay in its own network namespace, which
// a pod does not share; its files are seen from everywhere.
func (s *Service) hearDatabase(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		err = watcher.Add(s.config.UdevDatabase)
	}
	if err != nil {
		s.log.Info("follow udev's database; its properties are seen at the next resync", zap.Error(err))
		return nil
	}
	s.inventory.Resync()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if event.Op&(fsnotify.Create|fsnotify.Write) != 0 {
				s.written(filepath.Base(event.Name))
			}
		case err := <-watcher.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				s.metrics.Lost()
			}
			s.inventory.Resync()
		}
	}
}

// written says that udev knows something new of the device with this id. Names with a dot in front are files that udev
// is about to rename.
func (s *Service) written(id string) {
	if strings.HasPrefix(id, ".") {
		return
	}
	if devpath, ok := s.database.Devpath(id); ok {
		s.inventory.Changed(devpath)
	}
}
