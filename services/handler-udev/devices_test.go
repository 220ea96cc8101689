package udev_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"akri.sh/libs/handler"
)

// TestVirtualDevicesAppearAndDisappear uses a loop device and a network interface, which has no
// device node.
func TestVirtualDevicesAppearAndDisappear(t *testing.T) {
	stream := discover(t, run(t).GetEndpoint(), `udevRules: ['SUBSYSTEM=="block", KERNEL=="loop33"', 'SUBSYSTEM=="net", KERNEL=="akri-test*"']`)
	require.Empty(t, devices(t, stream, anyList))
	for _, test := range []struct {
		id, node string
		plug     func(*testing.T) (unplug func())
	}{
		{"/devices/virtual/block/loop33", "/dev/loop33", plugLoop},
		{"/devices/virtual/net/akri-test0", "", plugTun},
	} {
		unplug := test.plug(t)
		found := devices(t, stream, func(list map[string]*handler.Device) bool { return list[test.id] != nil })
		require.Len(t, found, 1)
		require.Equal(t, test.node, found[test.id].GetProperties()["UDEV_DEVNODE"])
		if test.node == "" {
			require.Empty(t, found[test.id].GetDeviceSpecs())
		}
		unplug()
		devices(t, stream, func(list map[string]*handler.Device) bool { return len(list) == 0 })
	}
}

func plugLoop(t *testing.T) (unplug func()) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, 33) // if the test failed before
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
	return func() { require.NoError(t, control.Close()) } // removes the interface
}
