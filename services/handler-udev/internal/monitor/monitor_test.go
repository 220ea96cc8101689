package monitor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/services/handler-udev/internal/monitor"
)

const timeout = time.Minute

// recorder is a Handler. It drops calls that no test receives.
type recorder chan string

func (r recorder) add(call string) {
	select {
	case r <- call:
	default:
	}
}

func (r recorder) Changed(devpath string) { r.add("changed " + devpath) }
func (r recorder) Removed(devpath, entry string, _ time.Time) {
	r.add("removed " + devpath + " " + entry)
}
func (r recorder) Deleted(entry string) { r.add("deleted " + entry) }
func (r recorder) Resync()              { r.add("resync") }

func TestEvents(t *testing.T) {
	for name, test := range map[string]struct {
		event monitor.Event
		want  []string
	}{
		"added":       {monitor.Event{Action: "add", Devpath: "/devices/x"}, []string{"changed /devices/x"}},
		"initialized": {monitor.Event{Action: "add", Devpath: "/devices/x", Udevd: true}, []string{"changed /devices/x"}},
		"removed":     {monitor.Event{Action: "remove", Devpath: "/devices/x", Entry: "b8:0"}, []string{"removed /devices/x b8:0"}},
		// Another device may have been plugged in since the event of the kernel.
		"removed from the database": {monitor.Event{Action: "remove", Devpath: "/devices/x", Udevd: true}, nil},
		"moved": {
			monitor.Event{Action: "move", Devpath: "/devices/y", OldDevpath: "/devices/x"},
			[]string{"changed /devices/y", "changed /devices/x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := make(recorder, 10)
			(&monitor.Monitor{Handler: calls}).Handle(test.event)
			close(calls)
			var got []string
			for call := range calls {
				got = append(got, call)
			}
			require.Equal(t, test.want, got)
		})
	}
}

// The directory of the database appears when udevd starts, and can be removed.
func TestDatabaseAppears(t *testing.T) {
	calls := make(recorder, 1000)
	directory := filepath.Join(t.TempDir(), "udev", "data")
	m := &monitor.Monitor{
		Handler: calls, DatabaseDir: directory, CountLost: func() {}, Log: zap.NewNop(),
		Devpath: func(id string) (string, bool) { return "/devices/test-" + id, true },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for range 2 {
		require.NoError(t, os.MkdirAll(directory, 0o700))
		awaitEntry(t, calls, directory)
		require.NoError(t, os.Remove(filepath.Join(directory, "entry")))
		await(t, calls, "deleted entry")
		require.NoError(t, os.RemoveAll(filepath.Dir(directory)))
	}
	cancel()
	require.NoError(t, <-done)
}

// awaitEntry writes an entry as udevd does until it is reported.
func awaitEntry(t *testing.T, calls recorder, directory string) {
	t.Helper()
	deadline := time.After(timeout)
	write := time.NewTicker(20 * time.Millisecond)
	defer write.Stop()
	for {
		select {
		case <-deadline:
			require.FailNow(t, "the entry is not reported")
		case <-write.C:
			temporary := filepath.Join(directory, ".#entry")
			require.NoError(t, os.WriteFile(temporary, nil, 0o600))
			require.NoError(t, os.Rename(temporary, filepath.Join(directory, "entry")))
		case call := <-calls:
			require.NotContains(t, call, "#")
			if call == "changed /devices/test-entry" {
				return
			}
		}
	}
}

func await(t *testing.T, calls recorder, want string) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		select {
		case <-deadline:
			require.FailNow(t, "timeout", want)
		case call := <-calls:
			if call == want {
				return
			}
		}
	}
}

// NotBefore is not after the time at which an event was sent. It is after the last event that was
// received before, unless the handler received them together.
func TestNotBefore(t *testing.T) {
	socket, err := monitor.Listen()
	require.NoError(t, err)
	trigger(t, "change", 3)
	sent := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	triggerRepeatedly(t, "online")
	var first time.Time
	err = socket.Receive(ctx, func(event monitor.Event, err error) {
		switch {
		case err != nil || event.Devpath != nullDevpath:
		case event.Action == "change":
			require.False(t, event.NotBefore.After(sent))
			first = time.Now()
		case event.NotBefore.After(first):
			cancel()
		}
	})
	require.NoError(t, err)
	require.ErrorIs(t, ctx.Err(), context.Canceled, "no event has a time after the first ones")
}
