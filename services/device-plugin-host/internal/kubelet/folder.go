// Package kubelet is the kubelet's side of the device plugin API: its folder of sockets and its registration.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

const (
	socketName = "kubelet.sock"
	// settle lets one restart of the kubelet, which removes all sockets and makes its own, be one disturbance.
	settle = 20 * time.Millisecond
	// rewatch is the pause before a folder that is gone is looked for again.
	rewatch = 200 * time.Millisecond
)

// Folder is where the kubelet and its device plugins have their sockets. The kubelet empties it when it starts, and then
// knows no plugin: whoever had registered must do so again.
type Folder struct {
	path      string
	log       *zap.Logger
	restarted func()

	mu       sync.Mutex
	sessions map[string]context.CancelFunc // by the name of the socket
}

// NewFolder returns the folder; restarted is called whenever the kubelet makes its socket anew.
func NewFolder(path string, restarted func(), log *zap.Logger) *Folder {
	return &Folder{path: path, restarted: restarted, log: log, sessions: map[string]context.CancelFunc{}}
}

// Path is the path of a socket in the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.path, name) }

// Session returns a context that ends when a registration of the named socket is void: the socket is gone, the kubelet
// started anew, or `end` was called.
func (f *Folder) Session(ctx context.Context, name string) (session context.Context, end context.CancelFunc) {
	session, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions[name] = cancel
	return session, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.sessions, name)
		cancel()
	}
}

// Run watches the folder until ctx ends. A folder that is not there yet, or not any more, is waited for.
func (f *Folder) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := f.watch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		f.log.Debug("watch of the kubelet's folder ended", zap.Error(err), zap.Duration("retry_in", rewatch))
		select {
		case <-ctx.Done():
		case <-time.After(rewatch):
		}
	}
	return nil
}

func (f *Folder) watch(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("make watcher: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(f.path); err != nil {
		return fmt.Errorf("watch %s: %w", f.path, err)
	}
	f.disturb(f.names()) // nobody knows what happened before
	return f.follow(ctx, watcher)
}

// follow collects what happens within a moment and then tells those concerned.
func (f *Folder) follow(ctx context.Context, watcher *fsnotify.Watcher) error {
	var pending []string
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", f.path, err)
		case event := <-watcher.Events:
			if event.Name == f.path && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return errors.New("the folder is gone")
			}
			if concerned := f.concerned(event); len(concerned) > 0 {
				pending = append(pending, concerned...)
				settled = time.After(settle)
			}
		case <-settled:
			f.disturb(pending)
			pending, settled = nil, nil
		}
	}
}

// concerned are the sockets whose registration the event makes void.
func (f *Folder) concerned(event fsnotify.Event) []string {
	name := filepath.Base(event.Name)
	switch {
	case name == socketName && event.Has(fsnotify.Create):
		f.log.Info("the kubelet made its socket: registering anew")
		f.restarted()
		return f.names()
	case event.Has(fsnotify.Remove | fsnotify.Rename):
		return []string{name}
	default:
		return nil
	}
}

func (f *Folder) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make([]string, 0, len(f.sessions))
	for name := range f.sessions {
		names = append(names, name)
	}
	return names
}

func (f *Folder) disturb(names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if cancel, ok := f.sessions[name]; ok {
			cancel()
		}
	}
}
