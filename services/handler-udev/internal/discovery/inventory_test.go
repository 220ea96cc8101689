package discovery_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
)

const (
	resync = 30 * time.Second
	disk   = "/devices/virtual/block/disk0"
)

// fixture is an Inventory with one Discover call.
type fixture struct {
	kernel    *fakeKernel
	inventory *discovery.Inventory

	mu   sync.Mutex
	sent []string
}

// last returns the device ids of the last list.
func (f *fixture) last() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent
}

func (f *fixture) send(devices []*handler.Device) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = []string{}
	for _, device := range devices {
		f.sent = append(f.sent, device.GetId())
	}
	return nil
}

// withInventory runs a test in a synctest bubble, with an Inventory of an empty kernel.
func withInventory(t *testing.T, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{kernel: newFakeKernel(), sent: []string{"no list yet"}}
		f.inventory = discovery.NewInventory(f.kernel, func(string, int, time.Duration) {}, func() {}, zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = f.inventory.Run(ctx, resync) }()
		go func() {
			request := handler.Request{Details: `udevRules: ['KERNEL=="disk*"']`}
			_ = f.inventory.Discover(ctx, request, f.send)
		}()
		synctest.Wait()
		require.Empty(t, f.last())
		f.kernel.listings()
		test(f)
	})
}

func TestEventListsOnlyItsDevice(t *testing.T) {
	withInventory(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk, Node: "/dev/disk0"})
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
		require.Equal(t, []string{disk}, f.kernel.listings())
	})
}

func TestRemovedDeviceStillInSysfs(t *testing.T) {
	withInventory(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk})
		f.inventory.Changed(disk)
		synctest.Wait()
		f.inventory.Removed(disk, "b8:0", time.Now())
		synctest.Wait()
		require.Empty(t, f.last())
		f.inventory.Changed("/devices/virtual/block") // lists it again
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
		f.kernel.unplug(disk)
		<-time.After(time.Second)
		synctest.Wait()
		require.Empty(t, f.last())
	})
}

// The delayed listing after one removal must not show a device that is about to be removed again.
func TestRemovedDeviceReturnsAndIsRemovedAgain(t *testing.T) {
	withInventory(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk})
		f.inventory.Changed(disk)
		f.inventory.Removed(disk, "b8:0", time.Now())
		<-time.After(200 * time.Millisecond)
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last(), "the device is back")
		f.inventory.Removed(disk, "b8:0", time.Now())
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, f.last(), "removed again, still in sysfs")
		f.kernel.unplug(disk)
		f.kernel.listings()
		<-time.After(time.Second)
		synctest.Wait()
		require.Empty(t, f.last())
		require.Equal(t, []string{disk}, f.kernel.listings(), "one listing after the last removal")
	})
}

func TestResyncFindsDeviceWithoutEvent(t *testing.T) {
	withInventory(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk})
		<-time.After(resync - time.Second)
		synctest.Wait()
		require.Empty(t, f.last())
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
	})
}

func TestResyncIsImmediateAfterLostEvents(t *testing.T) {
	withInventory(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk})
		f.inventory.Resync()
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
	})
}

func TestFloodOfEventsIsBounded(t *testing.T) {
	withInventory(t, func(f *fixture) {
		for n := range 10_000 {
			path := fmt.Sprintf("/devices/virtual/block/disk%d", n)
			f.kernel.plug(fakeDevice{Path: path})
			f.inventory.Changed(path)
		}
		synctest.Wait()
		require.Len(t, f.last(), 10_000)
		require.Less(t, len(f.kernel.listings()), 2_000)
	})
}

func TestEventsOfOtherKernelObjectsAreIgnored(t *testing.T) {
	withInventory(t, func(f *fixture) {
		for _, path := range []string{"/module/x", "/bus/usb", "/devices/../etc", "/devices/a/", "", strings.Repeat("/", 99)} {
			f.inventory.Changed(path)
		}
		synctest.Wait()
		require.Empty(t, f.kernel.listings())
	})
}
