package inventory_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/fakedev"
	"akri.sh/services/handler-udev/internal/inventory"
)

const (
	resync = 30 * time.Second
	disk   = "/devices/virtual/block/disk0"
)

// world is an inventory of a kernel with one Discover call, in a bubble of its own time.
type world struct {
	kernel    *fakedev.Kernel
	inventory *inventory.Inventory

	mu   sync.Mutex
	sent []string
}

// last is the list that was sent last.
func (w *world) last() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

func (w *world) send(devices []*handler.Device) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = []string{}
	for _, device := range devices {
		w.sent = append(w.sent, device.GetId())
	}
	return nil
}

// in runs a test in a world; `settle` lets everything happen that can without time passing.
func in(t *testing.T, test func(w *world, settle func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{kernel: fakedev.NewKernel(), sent: []string{"nothing was sent"}}
		w.inventory = inventory.New(w.kernel, inventory.NewMetrics(prometheus.NewRegistry()), zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.inventory.Run(ctx, resync) }()
		go func() {
			request := handler.Request{Details: `udevRules: ['KERNEL=="disk*"']`}
			_ = w.inventory.Discover(ctx, request, w.send)
		}()
		synctest.Wait()
		require.Empty(t, w.last())
		w.kernel.Looks()
		test(w, synctest.Wait)
	})
}

func TestEventCostsALookAtItsDeviceOnly(t *testing.T) {
	in(t, func(w *world, settle func()) {
		w.kernel.Plug(fakedev.Device{Path: disk, Node: "/dev/disk0"})
		w.inventory.Changed(disk)
		settle()
		require.Equal(t, []string{disk}, w.last())
		require.Equal(t, []string{disk}, w.kernel.Looks())
	})
}

func TestRemovedDeviceIsGoneAlthoughItCanStillBeSeen(t *testing.T) {
	in(t, func(w *world, settle func()) {
		w.kernel.Plug(fakedev.Device{Path: disk})
		w.inventory.Changed(disk)
		settle()
		w.inventory.Gone(disk)
		settle()
		require.Empty(t, w.last())
		w.inventory.Changed("/devices/virtual/block") // shows it once more
		settle()
		require.Equal(t, []string{disk}, w.last())
		w.kernel.Unplug(disk)
		<-time.After(time.Second)
		settle()
		require.Empty(t, w.last())
	})
}

func TestRemovedDeviceIsNotShownByTheLookAfterAFormerRemoval(t *testing.T) {
	in(t, func(w *world, settle func()) {
		w.kernel.Plug(fakedev.Device{Path: disk})
		w.inventory.Changed(disk)
		w.inventory.Gone(disk)
		<-time.After(200 * time.Millisecond)
		w.inventory.Changed(disk)
		settle()
		require.Equal(t, []string{disk}, w.last(), "it is back")
		w.inventory.Gone(disk)
		<-time.After(100 * time.Millisecond)
		settle()
		require.Empty(t, w.last(), "it is gone again, although it can still be seen")
		w.kernel.Unplug(disk)
		w.kernel.Looks()
		<-time.After(time.Second)
		settle()
		require.Empty(t, w.last())
		require.Equal(t, []string{disk}, w.kernel.Looks(), "one look after the last removal")
	})
}

func TestDeviceThatNoEventToldOfIsFoundByTheResync(t *testing.T) {
	in(t, func(w *world, settle func()) {
		w.kernel.Plug(fakedev.Device{Path: disk})
		<-time.After(resync - time.Second)
		settle()
		require.Empty(t, w.last())
		<-time.After(time.Second)
		settle()
		require.Equal(t, []string{disk}, w.last())
	})
}

func TestLostEventsAreMadeUpForAtOnce(t *testing.T) {
	in(t, func(w *world, settle func()) {
		w.kernel.Plug(fakedev.Device{Path: disk})
		w.inventory.Resync()
		settle()
		require.Equal(t, []string{disk}, w.last())
	})
}

func TestFloodOfEventsLosesNothingAndCostsFewLooks(t *testing.T) {
	in(t, func(w *world, settle func()) {
		for n := range 10_000 {
			path := fmt.Sprintf("/devices/virtual/block/disk%d", n)
			w.kernel.Plug(fakedev.Device{Path: path})
			w.inventory.Changed(path)
		}
		settle()
		require.Len(t, w.last(), 10_000)
		require.Less(t, len(w.kernel.Looks()), 2_000)
	})
}

func TestEventsOfDriversAndModulesCostNothing(t *testing.T) {
	in(t, func(w *world, settle func()) {
		for _, path := range []string{"/module/x", "/bus/usb", "/devices/../etc", "/devices/a/", "", strings.Repeat("/", 99)} {
			w.inventory.Changed(path)
		}
		settle()
		require.Empty(t, w.kernel.Looks())
	})
}
