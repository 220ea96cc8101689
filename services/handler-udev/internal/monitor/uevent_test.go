package monitor_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jochenvg/go-udev"
	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-udev/internal/monitor"
)

const (
	// nullDevpath is a device of every Linux machine.
	nullDevpath = "/devices/virtual/mem/null"
	nullUevent  = "/sys" + nullDevpath + "/uevent"
	smallBuffer = 4 << 10
	manyEvents  = 500 // more than the small buffer holds
)

// trigger makes the kernel send uevents of the null device.
func trigger(t *testing.T, action string, times int) {
	t.Helper()
	for range times {
		require.NoError(t, os.WriteFile(nullUevent, []byte(action), 0o200), "this test needs root")
	}
}

// triggerRepeatedly makes the kernel send uevents of the null device until the test ends. The
// kernel drops events until the receiver has emptied its full buffer.
func triggerRepeatedly(t *testing.T, action string) {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-t.Context().Done():
				return
			case <-ticker.C:
				_ = os.WriteFile(nullUevent, []byte(action), 0o200)
			}
		}
	})
	t.Cleanup(running.Wait)
}

func TestSocketReportsLostEvents(t *testing.T) {
	socket, err := monitor.Listen()
	require.NoError(t, err)
	require.NoError(t, socket.SetReceiveBuffer(smallBuffer))
	trigger(t, "change", manyEvents)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	triggerRepeatedly(t, "online")
	changed, lost, last := 0, 0, ""
	err = socket.Receive(ctx, func(event monitor.Event, err error) {
		switch {
		case errors.Is(err, monitor.ErrLost):
			lost++
		case event.Devpath != nullDevpath:
		case event.Action == "change":
			changed++
		default:
			last = event.Action
			cancel()
		}
	})
	require.NoError(t, err)
	require.Positive(t, lost)
	require.Less(t, changed, manyEvents)
	require.Equal(t, "online", last, "events after the loss are received")
}

// The monitor of go-udev hides that events were lost, so Socket exists. If this test fails, go-udev
// reports them. Then compare its memory and processor time with those of Socket again.
func TestGoUdevHidesLostEvents(t *testing.T) {
	kernel := (&udev.Udev{}).NewMonitorFromNetlink("kernel")
	require.NotNil(t, kernel)
	_ = kernel.SetReceiveBufferSize(smallBuffer) // go-udev takes libudev's result 1, "changed", for an error
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	devices, errs, err := kernel.DeviceChan(ctx)
	require.NoError(t, err)
	trigger(t, "change", manyEvents) // go-udev waits for a receiver of the first event
	triggerRepeatedly(t, "online")
	changed, reported := 0, 0
	for devices != nil || errs != nil { // both are drained until go-udev closes them
		select {
		case device, ok := <-devices:
			switch {
			case !ok:
				devices = nil
			case device.Devpath() != nullDevpath:
			case device.Action() == "online":
				cancel()
			default:
				changed++
			}
		case err, ok := <-errs:
			if ok {
				t.Log(err)
				reported++
			} else {
				errs = nil
			}
		}
	}
	require.Less(t, changed, manyEvents)
	require.Zero(t, reported)
}
