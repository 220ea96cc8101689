package discovery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"akri.sh/libs/details/udev/rules"
	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
)

// withUdevd is withInventory on a node with udevd.
func withUdevd(t *testing.T, test func(f *fixture)) {
	t.Helper()
	withInventory(t, func(f *fixture) {
		f.kernel.setUdevd(true, false)
		test(f)
	})
}

func TestDeviceWaitsForUdevd(t *testing.T) {
	withUdevd(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk})
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Empty(t, f.last())
		<-time.After(5 * time.Second)
		f.kernel.initialize(disk, time.Now(), nil)
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last(), "at once")
		f.kernel.initialize(disk, time.Time{}, nil)
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last(), "without its entry")
	})
}

// An entry without an event is found, too.
func TestWaitingDeviceIsExaminedAgain(t *testing.T) {
	withUdevd(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk})
		f.inventory.Changed(disk)
		synctest.Wait()
		f.kernel.initialize(disk, time.Now(), nil)
		<-time.After(examined)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
		f.kernel.listings()
		<-time.After(5 * time.Second)
		require.Empty(t, f.kernel.listings(), "no device waits")
	})
}

func TestUdevdDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := newFakeKernel(fakeDevice{Path: disk})
		kernel.setUdevd(true, true)
		core, logs := observer.New(zap.WarnLevel)
		timedOut := 0
		inventory := discovery.NewInventory(kernel, func(string, int, time.Duration) {}, func() { timedOut++ }, zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = inventory.Run(ctx, resync) }()
		started := time.Now()
		for range 2 { // the second call does not wait again
			var lists [][]*handler.Device
			go func() {
				_ = inventory.Discover(ctx, handler.Request{Details: `udevRules: ['KERNEL=="disk*"']`}, func(devices []*handler.Device) error {
					lists = append(lists, devices)
					return nil
				})
			}()
			synctest.Wait()
			<-time.After(udevTimeout + examined - time.Since(started))
			synctest.Wait()
			require.Len(t, lists, 1, "the first list waits for its device")
			require.Len(t, lists[0], 1)
		}
		require.Equal(t, 1, timedOut)
		require.Equal(t, 1, logs.Len())
		require.Contains(t, logs.All()[0].Message, "udevd did not initialize a device in time")
	})
}

func TestUdevdEndsAndStarts(t *testing.T) {
	withUdevd(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk})
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Empty(t, f.last())
		f.kernel.setUdevd(false, false)
		<-time.After(examined)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
		f.kernel.setUdevd(true, false)
		const other = "/devices/virtual/block/disk1"
		f.kernel.plug(fakeDevice{Path: other})
		f.inventory.Changed(other)
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
	})
}

// A device that is plugged in before udevd has deleted the entry of a removed one has its number.
func TestEntryOfRemovedDevice(t *testing.T) {
	withUdevd(t, func(f *fixture) {
		f.kernel.plug(fakeDevice{Path: disk, EntryName: "b8:0", Initialized: time.Now()})
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Equal(t, []string{disk}, f.last())
		stale := time.Now()
		<-time.After(time.Second)
		f.kernel.setUdevd(true, true)
		f.kernel.unplug(disk)
		f.inventory.Removed(disk, "b8:0", time.Now())
		const other = "/devices/virtual/block/disk1"
		f.kernel.plug(fakeDevice{Path: other, EntryName: "b8:0", Initialized: stale})
		f.inventory.Changed(other)
		synctest.Wait()
		require.Empty(t, f.last())
		<-time.After(time.Second)
		f.kernel.initialize(other, time.Now(), nil)
		f.inventory.Changed(other)
		synctest.Wait()
		require.Empty(t, f.last(), "udevd adds an entry for a removed device")
		f.inventory.Deleted("b8:0")
		f.kernel.initialize(other, time.Now(), nil)
		f.inventory.Changed(other)
		synctest.Wait()
		require.Equal(t, []string{other}, f.last(), "although udevd has further events")
	})
}

// The number of removals that are kept is limited. Beyond it, devices wait until udevd is idle.
func TestManyRemovals(t *testing.T) {
	withUdevd(t, func(f *fixture) {
		stale := time.Now()
		const other = "/devices/virtual/block/disk1"
		f.kernel.plug(fakeDevice{Path: other, Initialized: stale})
		f.inventory.Changed(other)
		<-time.After(time.Second)
		require.Equal(t, []string{other}, f.last())
		f.kernel.setUdevd(true, true)
		for n := range 300 {
			f.inventory.Removed(fmt.Sprint("/devices/removed", n), fmt.Sprint("b8:", n), time.Now())
		}
		f.kernel.plug(fakeDevice{Path: disk, EntryName: "b8:299", Initialized: stale})
		f.inventory.Changed(disk)
		synctest.Wait()
		require.Equal(t, []string{other}, f.last())
		f.kernel.setUdevd(true, false)
		<-time.After(examined)
		synctest.Wait()
		require.Equal(t, []string{disk, other}, f.last())
	})
}

// A match is listed when the ancestor with its device node is initialized, too.
func TestAncestorWaitsForUdevd(t *testing.T) {
	kernel := newFakeKernel(
		fakeDevice{Path: camera, Node: "/dev/bus/usb/001/010"},
		fakeDevice{Path: function, Initialized: time.Now()},
	)
	set := discovery.NewSet(parse(t, `udevRules: ['KERNEL=="1-1:1.0"']`, nil))
	refresh := func() {
		devices, err := kernel.Devices("")
		require.NoError(t, err)
		set.Refresh("", devices, uninitialized)
	}
	refresh()
	require.Empty(t, list(t, set))
	kernel.initialize(camera, time.Now(), nil)
	refresh()
	require.Contains(t, list(t, set), camera)
}

func uninitialized(device rules.Device) bool {
	_, initialized := device.Initialized()
	return !initialized
}

// A group is listed first when none of its devices waits. Then it grows.
func TestGroupWaitsForUdevd(t *testing.T) {
	const second = function + "/video4linux/video1"
	kernel := newFakeKernel(
		fakeDevice{Path: camera, Node: "/dev/bus/usb/001/010", Initialized: time.Now()},
		fakeDevice{Path: video, Node: "/dev/video0"},
	)
	set := discovery.NewSet(parse(t, "groupRecursive: true\nudevRules: ['KERNEL==\"1-1|video*\"']", nil))
	nodes := func() []string {
		devices, err := kernel.Devices("")
		require.NoError(t, err)
		set.Refresh("", devices, uninitialized)
		return list(t, set)[camera].nodes
	}
	require.Empty(t, nodes())
	kernel.initialize(video, time.Now(), nil)
	require.Equal(t, []string{"/dev/bus/usb/001/010:rw", "/dev/video0:rw"}, nodes())
	kernel.plug(fakeDevice{Path: second, Node: "/dev/video1"})
	require.Equal(t, []string{"/dev/bus/usb/001/010:rw", "/dev/video0:rw"}, nodes())
	kernel.initialize(second, time.Now(), nil)
	require.Len(t, nodes(), 3)

	kernel.unplug(camera)
	kernel.plug(fakeDevice{Path: camera, Node: "/dev/bus/usb/001/011"})
	kernel.plug(fakeDevice{Path: video, Node: "/dev/video0", Initialized: time.Now()})
	require.Empty(t, nodes(), "plugged in again, with the same paths")
}

// udevd may store properties between the evaluation of the rules and the look for the entry.
func TestRuleIsEvaluatedWithEntry(t *testing.T) {
	kernel := newFakeKernel(fakeDevice{Path: disk, Database: map[string]string{}})
	set := discovery.NewSet(parse(t, `udevRules: ['KERNEL=="disk*", ENV{IGNORE}!="1"']`, nil))
	devices, err := kernel.Devices("")
	require.NoError(t, err)
	set.Refresh("", devices, func(device rules.Device) bool {
		device.(*pluggedDevice).Database["IGNORE"] = "1"
		return false
	})
	require.Empty(t, list(t, set))
}
