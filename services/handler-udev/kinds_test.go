package udev_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"akri.sh/libs/handler"
)

// TestDevicesOfEveryKindComeAndGo plugs in what the kernel makes of nothing: a loop device, and a network interface, which
// has no device node.
func TestDevicesOfEveryKindComeAndGo(t *testing.T) {
	from := discover(t, run(t).GetEndpoint(), `udevRules: ['SUBSYSTEM=="block", KERNEL=="loop33"', 'SUBSYSTEM=="net", KERNEL=="akri-test*"']`)
	require.Empty(t, devices(t, from, anything))
	for _, kind := range []struct {
		id, node string
		plug     func(*testing.T) (unplug func())
	}{
		{"/devices/virtual/block/loop33", "/dev/loop33", plugLoop},
		{"/devices/virtual/net/akri-test0", "", plugTun},
	} {
		unplug := kind.plug(t)
		found := devices(t, from, func(list map[string]*handler.Device) bool { return list[kind.id] != nil })
		require.Len(t, found, 1)
		require.Equal(t, kind.node, found[kind.id].GetProperties()["UDEV_DEVNODE"])
		if kind.node == "" {
			require.Empty(t, found[kind.id].GetDeviceSpecs())
		}
		unplug()
		devices(t, from, func(list map[string]*handler.Device) bool { return len(list) == 0 })
	}
}

func plugLoop(t *testing.T) (unplug func()) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, 33) // where the test did not get that far
		_ = control.Close()
	})
	require.NoError(t, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, 33))
	return func() { require.NoError(t, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, 33)) }
}

func plugTun(t *testing.T) (unplug func()) {
	t.Helper()
	control, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	require.NoError(t, err)
	request, err := unix.NewIfreq("akri-test0")
	require.NoError(t, err)
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	require.NoError(t, unix.IoctlIfreq(int(control.Fd()), unix.TUNSETIFF, request))
	return func() { require.NoError(t, control.Close()) } // the interface goes with it
}
