package operator_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"
)

// Finding 5: a disk leaves when the node mounts it, and returns when the node no longer uses it.
// Other devices stay.
func TestDiskIsMountedLater(t *testing.T) {
	h := newHarness(t, forever)
	h.config.Sys, h.config.HostMounts, h.config.DiskInterval = t.TempDir(), filepath.Join(t.TempDir(), "mountinfo"), 10*time.Millisecond
	for link, name := range map[string]string{"dev/block/8:0": "akri-test", "dev/char/1:3": "null"} {
		write(t, filepath.Join(h.config.Sys, "devices", name, "uevent"), "DEVNAME="+name+"\n")
		subsystem := map[string]string{"akri-test": "block", "null": "mem"}[name]
		require.NoError(t, os.Symlink("/sys/class/"+subsystem, filepath.Join(h.config.Sys, "devices", name, "subsystem")))
		link = filepath.Join(h.config.Sys, link)
		require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o700))
		require.NoError(t, os.Symlink("../../devices/"+name, link))
	}
	const unused = "22 27 0:21 / /proc rw - proc proc rw\n"
	write(t, h.config.HostMounts, unused)
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		devices := []*discoveryv0.Device{
			{Id: "disk", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/akri-test"}}},
			{Id: "null", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/null"}}},
		}
		if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: devices}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}).serve(t, h, "foo")
	h.start()
	key := h.apply(h.namespace, "disks", "foo", "")
	h.reported(key, true, "disk", "null")

	write(t, h.config.HostMounts, unused+"30 27 8:0 / /data rw - ext4 /dev/akri-test rw\n")
	h.reported(key, true, "null")
	require.Contains(t, h.problem(key, akriv0.ReasonInvalidDevice).GetMessage(),
		`device "disk" with device node of host path "/dev/akri-test", a disk that the node uses: /dev/akri-test is mounted at /data`)

	write(t, h.config.HostMounts, unused)
	require.Empty(t, h.reported(key, true, "disk", "null").GetProblems())
}

// write replaces a file in one step.
func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}
