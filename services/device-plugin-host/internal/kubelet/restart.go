package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"akri.sh/libs/failurelog"
)

const (
	// quietPeriod combines the events of one kubelet restart, which removes all sockets and creates
	// its own.
	quietPeriod = 20 * time.Millisecond
	// rewatchInterval is the delay before a directory that does not exist is watched again.
	rewatchInterval = 200 * time.Millisecond
)

// RegistrationContext returns a context for the registration of the named socket. It ends when the
// registration becomes invalid: the socket was removed, the kubelet restarted, or end was called.
func (d *SocketDir) RegistrationContext(ctx context.Context, socket string) (registration context.Context, end func()) {
	registration, cancel := context.WithCancel(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registrations[socket] = cancel
	return registration, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.registrations, socket)
		cancel()
	}
}

// Watch watches the directory until ctx ends and then returns nil. It calls onRestart whenever the
// kubelet creates its socket, and ends the contexts of registrations that become invalid. It waits
// for a directory that does not exist.
func (d *SocketDir) Watch(ctx context.Context, onRestart func()) error {
	failures := failurelog.New(d.log,
		"watching the kubelet's directory keeps failing; device plugins do not register again after a restart of the kubelet",
		"watching the kubelet's directory works again")
	_, _ = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, d.watch(ctx, onRestart, failures) },
		backoff.WithBackOff(backoff.NewConstantBackOff(rewatchInterval)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, delay time.Duration) {
			failures.Record(err)
			d.log.Debug("watching the device plugin directory failed", zap.Error(err), zap.Duration("retry_in", delay))
		}))
	return nil
}

// watch returns nil when ctx ends.
func (d *SocketDir) watch(ctx context.Context, onRestart func(), failures *failurelog.Log) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("create watcher: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(d.path); err != nil {
		return fmt.Errorf("watch %s: %w", d.path, err)
	}
	failures.Record(nil)
	d.invalidate(d.sockets()) // events before this moment were missed
	return d.handleEvents(ctx, watcher, onRestart)
}

func (d *SocketDir) handleEvents(ctx context.Context, watcher *fsnotify.Watcher, onRestart func()) error {
	var pending []string
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", d.path, err)
		case event := <-watcher.Events:
			if event.Name == d.path && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return errors.New("the directory was removed")
			}
			if invalid := d.invalidatedBy(event, onRestart); len(invalid) > 0 {
				pending = append(pending, invalid...)
				quiet = time.After(quietPeriod)
			}
		case <-quiet:
			d.invalidate(pending)
			pending, quiet = nil, nil
		}
	}
}

// invalidatedBy returns the sockets whose registrations are invalid after the event.
func (d *SocketDir) invalidatedBy(event fsnotify.Event, onRestart func()) []string {
	name := filepath.Base(event.Name)
	switch {
	case name == socketName && event.Has(fsnotify.Create):
		d.log.Info("the kubelet restarted; registering all device plugins again")
		onRestart()
		return d.sockets()
	case event.Has(fsnotify.Remove | fsnotify.Rename):
		return []string{name}
	default:
		return nil
	}
}

func (d *SocketDir) sockets() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.registrations))
}

func (d *SocketDir) invalidate(sockets []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range sockets {
		if cancel, ok := d.registrations[name]; ok {
			cancel()
		}
	}
}
