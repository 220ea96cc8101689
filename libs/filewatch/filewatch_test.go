package filewatch_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watch watches the path until the test ends.
func watch(t *testing.T, path string) broadcast.Signal {
	t.Helper()
	changed := broadcast.NewSignal()
	t.Cleanup(filewatch.Watch(path, changed.Notify))
	return changed
}

// awaitState waits until a report comes in a state in which the condition holds. A change of a
// directory causes several reports.
func awaitState(t *testing.T, changed broadcast.Signal, holds func() bool) {
	t.Helper()
	timeout := time.After(5 * time.Second)
	for {
		select {
		case <-changed:
			if holds() {
				return
			}
		case <-timeout:
			require.FailNow(t, "no change was reported")
		}
	}
}

func exists(path string) func() bool {
	return func() bool {
		_, err := os.Lstat(path)
		return err == nil
	}
}

func missing(path string) func() bool { return func() bool { return !exists(path)() } }

func TestFile(t *testing.T) {
	directory := t.TempDir()
	path, other := filepath.Join(directory, "file"), filepath.Join(directory, "other")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	changed := watch(t, path)
	for _, step := range []struct {
		name   string
		change func() error
		holds  func() bool
	}{
		{"created", func() error { return os.WriteFile(path, nil, 0o600) }, exists(path)},
		{"written", func() error { return os.WriteFile(path, []byte("x"), 0o600) }, func() bool {
			content, err := os.ReadFile(path)
			return err == nil && string(content) == "x"
		}},
		{"replaced", func() error { return os.Rename(other, path) }, missing(other)},
		{"moved", func() error { return os.Rename(path, other) }, missing(path)},
		{"moved back", func() error { return os.Rename(other, path) }, exists(path)},
		{"removed", func() error { return os.Remove(path) }, missing(path)},
	} {
		t.Log(step.name)
		require.NoError(t, step.change())
		awaitState(t, changed, step.holds)
	}
}

func TestDirectory(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "parent")
	directory := filepath.Join(parent, "directory")
	path := filepath.Join(directory, "file")
	changed := watch(t, path) // neither exists

	create := func() {
		require.NoError(t, os.MkdirAll(directory, 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		awaitState(t, changed, exists(path))
	}
	create()
	require.NoError(t, os.RemoveAll(parent))
	awaitState(t, changed, missing(path))

	create()
	require.NoError(t, os.Rename(directory, filepath.Join(t.TempDir(), "moved")))
	awaitState(t, changed, missing(path))
	create()
}

// Files of one directory have one watch, which stays until the last of them is not watched.
func TestSharedDirectory(t *testing.T) {
	directory := t.TempDir()
	first, second := filepath.Join(directory, "first"), filepath.Join(directory, "second")
	ended := broadcast.NewSignal()
	stop := filewatch.Watch(first, ended.Notify)
	changed := watch(t, second)
	stop()
	stop()

	require.NoError(t, os.WriteFile(first, nil, 0o600))
	require.NoError(t, os.WriteFile(second, nil, 0o600))
	awaitState(t, changed, exists(second))
	require.Empty(t, ended)
}

// Without inotify, all files are reported at an interval.
func TestWithoutInotify(t *testing.T) {
	filewatch.SetInotify(t, func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") })
	path := filepath.Join(t.TempDir(), "file")
	changed := watch(t, path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	awaitState(t, changed, exists(path))
	require.NoError(t, os.Remove(path))
	awaitState(t, changed, missing(path))
}

// A directory that cannot be watched yet is found while events of other files arrive.
func TestDirectoryBesideBusyFile(t *testing.T) {
	busy := filepath.Join(t.TempDir(), "busy")
	other := watch(t, busy)
	path := filepath.Join(t.TempDir(), "directory", "subdirectory", "file")
	changed := watch(t, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, nil, 0o600))

	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-other:
			case <-time.After(20 * time.Millisecond):
				_ = os.WriteFile(busy, nil, 0o600)
			}
		}
	}()
	awaitState(t, changed, exists(path))
	close(stop)
	<-stopped
}
