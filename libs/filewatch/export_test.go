package filewatch

import (
	"testing"

	"github.com/fsnotify/fsnotify"
)

// SetInotify replaces the function that creates inotify instances until the test ends.
func SetInotify(t *testing.T, create func() (*fsnotify.Watcher, error)) {
	t.Helper()
	newInotify = create
	t.Cleanup(func() { newInotify = fsnotify.NewWatcher })
}
