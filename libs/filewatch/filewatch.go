// Package filewatch reports that files may have changed, also together with their directories.
//
// All watches of a process share one inotify instance: the kernel limits those of a user
// (`fs.inotify.max_user_instances`, 128 by default), and most containers of a node run as root.
package filewatch

import (
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"akri.sh/libs/broadcast"
)

// pollInterval is the time between two reports about a file whose directory cannot be watched: it
// does not exist, or the limit of inotify is reached.
const pollInterval = 500 * time.Millisecond

// Watch calls changed whenever the file at the path may have been created, written, removed or
// replaced, until stop is called. A call can also be about a change shortly before. Neither the
// file nor its directory need exist. changed must not block and is not called after stop has
// returned.
func Watch(path string, changed func()) (stop func()) {
	f := newFile(path, changed)
	processMu.Lock()
	defer processMu.Unlock()
	if process == nil {
		process = start()
	}
	process.add(f)
	return sync.OnceFunc(func() {
		processMu.Lock()
		defer processMu.Unlock()
		if process.remove(f); len(process.files) == 0 {
			process.close()
			process = nil
		}
	})
}

// newInotify is replaced in tests.
var newInotify = fsnotify.NewWatcher

var (
	processMu sync.Mutex
	process   *watcher // nil while the process watches no file
)

// file is a watched file.
type file struct {
	name    string
	changed func()
	// directories are the directory of the file and its parent. The kernel does not report that a
	// directory was removed while a socket in it, or a mount of it, is in use. The parent does.
	directories [2]string
	watched     bool // whether both directories are watched
}

func newFile(path string, changed func()) *file {
	directory := filepath.Dir(path)
	return &file{name: filepath.Base(path), changed: changed, directories: [2]string{directory, filepath.Dir(directory)}}
}

// isDirectory returns whether the last element of the path of the directory is the name.
func (f *file) isDirectory(name string) bool { return name == filepath.Base(f.directories[0]) }

// watcher watches the directories of files.
type watcher struct {
	inotify *fsnotify.Watcher // nil if there is none
	added   broadcast.Signal  // a file was added
	closing chan struct{}
	closed  chan struct{}

	mu    sync.Mutex
	files []*file
}

func start() *watcher {
	w := &watcher{added: broadcast.NewSignal(), closing: make(chan struct{}), closed: make(chan struct{})}
	var events <-chan fsnotify.Event
	var failures <-chan error
	if inotify, err := newInotify(); err == nil {
		w.inotify, events, failures = inotify, inotify.Events, inotify.Errors
	}
	go w.run(events, failures)
	return w
}

// close waits until the watcher has stopped.
func (w *watcher) close() {
	close(w.closing)
	<-w.closed
	if w.inotify != nil {
		_ = w.inotify.Close()
	}
}

func (w *watcher) run(events <-chan fsnotify.Event, failures <-chan error) {
	defer close(w.closed)
	var poll <-chan time.Time // it continues while events of other files arrive
	for {
		switch {
		case w.watchesAll():
			poll = nil
		case poll == nil:
			poll = time.After(pollInterval)
		}

		select {
		case <-w.closing:
			return
		case <-w.added:
		case event := <-events:
			w.report(event)
		case <-failures: //nolint:errcheck // whatever the error is
			w.reportAll() // events may be lost
		case <-poll:
			poll = nil
			w.retry()
		}
	}
}

func (w *watcher) add(f *file) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, f)
	w.watch(f)
	w.added.Notify()
}

// watch watches the directories of the file; the lock is held. Another directory may have their
// paths since they were watched.
func (w *watcher) watch(f *file) {
	f.watched = w.inotify != nil
	for _, directory := range f.directories {
		f.watched = f.watched && w.inotify.Add(directory) == nil
	}
}

func (w *watcher) remove(f *file) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = slices.DeleteFunc(w.files, func(other *file) bool { return other == f })
	for _, directory := range f.directories {
		used := slices.ContainsFunc(w.files, func(other *file) bool { return slices.Contains(other.directories[:], directory) })
		if !used && w.inotify != nil {
			_ = w.inotify.Remove(directory) // fails if it is not watched
		}
	}
}

func (w *watcher) watchesAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.files, func(f *file) bool { return !f.watched })
}

// report reports an event. The directory in its name can be another path of the directory of a
// file, so that only last elements are compared. A new directory must be watched again.
func (w *watcher) report(event fsnotify.Event) {
	if event.Op == fsnotify.Chmod {
		return
	}
	name := filepath.Base(event.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.files {
		if f.isDirectory(name) {
			w.watch(f)
		}
		if f.isDirectory(name) || name == f.name {
			f.changed()
		}
	}
}

func (w *watcher) reportAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.files {
		f.changed()
	}
}

// retry watches the directories that could not be watched. Their files may have changed meanwhile.
func (w *watcher) retry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.files {
		if !f.watched {
			w.watch(f)
			f.changed()
		}
	}
}
