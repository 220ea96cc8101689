package udevdb_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"akri.sh/libs/details/udev/rules"
	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
	"akri.sh/services/handler-udev/internal/udevdb"
)

const (
	usb    = "/devices/pci0000:00/0000:00:14.0/usb1"
	camera = usb + "/1-4"
	video  = camera + "/1-4:1.0/video4linux/video0"
	card   = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
)

// testbed runs the test a second time, in a process in which libudev sees only the devices of
// testdata. There it returns the directory of their sys, otherwise "". The files have the format of
// umockdev-record: a USB camera with a microphone, an adapter whose name starts with the name of
// the camera, and a graphics card behind a PCI bridge for virtual machines.
func testbed(t *testing.T) (root string) {
	t.Helper()
	return testbedIn(t, nil)
}

// testbedIn is testbed with attributes of the process.
func testbedIn(t *testing.T, process *syscall.SysProcAttr) (root string) {
	t.Helper()
	if root := os.Getenv("UMOCKDEV_DIR"); root != "" {
		return root
	}
	descriptions, err := filepath.Glob("testdata/*.umockdev")
	require.NoError(t, err)
	var arguments []string
	for _, description := range descriptions {
		arguments = append(arguments, "--device", description)
	}
	arguments = append(arguments, "--", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	command := exec.CommandContext(t.Context(), "umockdev-run", arguments...)
	command.SysProcAttr = process
	output, err := command.CombinedOutput()
	require.NoError(t, err, "this test needs the Debian package umockdev\n%s", output)
	require.Contains(t, string(output), "--- PASS: "+t.Name())
	return ""
}

type offered struct {
	properties map[string]string
	nodes      []string
}

// discover returns the devices of a Configuration by id.
func discover(t *testing.T, root, details string, properties map[string]string) map[string]offered {
	t.Helper()
	request := handler.Request{Details: details, Properties: map[string][]byte{}}
	for name, value := range properties {
		request.Properties[name] = []byte(value)
	}
	spec, err := discovery.ParseSpec(request)
	require.NoError(t, err)
	set := discovery.NewSet(spec)
	devices, err := (&udevdb.Database{Root: root}).Devices("")
	require.NoError(t, err)
	set.Refresh("", devices, func(rules.Device) bool { return false })
	byID := map[string]offered{}
	for _, device := range set.Devices() {
		content := offered{properties: device.GetProperties()}
		delete(content.properties, "UDEV_DEVPATH")
		for _, node := range device.GetDeviceSpecs() {
			content.nodes = append(content.nodes, node.GetHostPath()+" "+node.GetPermissions())
		}
		byID[device.GetId()] = content
	}
	return byID
}

func TestCamerasAndCardsOfTestbed(t *testing.T) {
	root := testbed(t)
	if root == "" {
		return
	}
	for name, test := range map[string]struct {
		details    string
		properties map[string]string
		want       map[string]offered
	}{
		"capture node of a camera, with properties": {
			details: `{udevRules: ['SUBSYSTEM=="video4linux", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"'], permissions: rw,
				properties: {SERIAL: "ATTRS{serial}", MODEL: "ENV{ID_MODEL}", DRIVER: DRIVERS, RAW: "ATTRS{descriptors}"}}`,
			want: map[string]offered{video: {
				map[string]string{"UDEV_DEVNODE": "/dev/video0", "SERIAL": "4CAF7E1F", "MODEL": "HD_Pro_Webcam_C920", "DRIVER": "uvcvideo"},
				[]string{"/dev/video0 rw"},
			}},
		},
		"camera as a group": {
			details: `{udevRules: ['ATTRS{idVendor}=="046d", ATTRS{idProduct}=="082d"'], groupRecursive: true}`,
			want: map[string]offered{camera: {
				map[string]string{
					"UDEV_DEVNODE_0": "/dev/bus/usb/001/007", "UDEV_DEVNODE_1": "/dev/video0", "UDEV_DEVNODE_2": "/dev/video1",
					"UDEV_DEVNODE_3": "/dev/snd/pcmC1D0c",
				},
				[]string{"/dev/bus/usb/001/007 rw", "/dev/video0 rw", "/dev/video1 rw", "/dev/snd/pcmC1D0c rw"},
			}},
		},
		"camera by its interface, for a virtual machine": {
			details:    `{udevRules: ['DRIVER=="uvcvideo"']}`,
			properties: map[string]string{"devicePluginResourceName": "akri.sh/webcam"},
			want: map[string]offered{camera: {
				map[string]string{"UDEV_DEVNODE": "/dev/bus/usb/001/007", "USB_RESOURCE_AKRI_SH_WEBCAM": "1:7"}, []string{"/dev/bus/usb/001/007 rw"},
			}},
		},
		"card with passthrough, without a device node": {
			details:    `{udevRules: ['SUBSYSTEM=="pci", DRIVER=="vfio-pci", ATTR{class}=="0x03*"'], properties: {ID: "ENV{PCI_ID}"}}`,
			properties: map[string]string{"devicePluginResourceName": "nvidia.com/t4", "vfioPassthrough": "true"},
			want: map[string]offered{card: {
				map[string]string{"PCI_RESOURCE_NVIDIA_COM_T4": "0000:01:00.0", "ID": "10DE:1EB8"}, []string{"/dev/vfio/15 rw", "/dev/vfio/vfio rw"},
			}},
		},
		"no device: the attributes are of different ancestors": {
			details: `{udevRules: ['ATTRS{idVendor}=="1d6b", ATTRS{idProduct}=="082d"']}`,
			want:    map[string]offered{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, discover(t, root, test.details, test.properties))
		})
	}
}

func TestRemovedDeviceTakesItsDescendants(t *testing.T) {
	root := testbed(t)
	if root == "" {
		return
	}
	const details = `udevRules: ['SUBSYSTEM=="video4linux|usb|sound", DEVPATH!="*/usb1"']`
	require.Contains(t, discover(t, root, details, nil), video)
	require.NoError(t, os.RemoveAll(root+"/sys"+camera))
	devices := discover(t, root, details, nil)
	require.Len(t, devices, 1)
	require.Contains(t, devices, usb+"/1-40")
}

// The testbed has no entries of udevd. libudev reads those that the test writes to a file system of
// its own.
func TestEntries(t *testing.T) {
	root := testbedIn(t, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS})
	if root == "" {
		return
	}
	require.NoError(t, unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	const database = "/run/udev/data"
	require.NoError(t, os.MkdirAll(database, 0o700))
	now := monotonic(t)
	for name, content := range map[string]string{
		"c81:0":        fmt.Sprintf("I:%d\nE:ID_MODEL=C920\n", (now - time.Second).Microseconds()),
		"c81:1":        fmt.Sprintf("I:%d\nE:ID_PROCESSING=1\n", now.Microseconds()),
		"c116:6":       "",
		"+usb:1-4:1.0": fmt.Sprintf("I:%d\nE:ID_USB_INTERFACE_NUM=00\n", now.Microseconds()),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(database, name), []byte(content), 0o600))
	}
	devices, err := (&udevdb.Database{Root: root}).Devices("")
	require.NoError(t, err)
	byEntry := map[string]rules.Device{}
	for _, device := range devices {
		require.NotContains(t, byEntry, device.Entry())
		byEntry[device.Entry()] = device
	}
	for entry, want := range map[string]struct{ initialized, stored, timed bool }{
		"c81:0":             {initialized: true, stored: true, timed: true},
		"c81:1":             {stored: true}, // udevd still runs programs
		"c116:6":            {initialized: true, stored: true},
		"+usb:1-4:1.0":      {initialized: true, timed: true},
		"+usb:1-4:1.2":      {},
		"+sound:card1":      {},
		"+pci:0000:01:00.0": {},
	} {
		device := byEntry[entry]
		require.NotNil(t, device, entry)
		at, initialized := device.Initialized()
		require.Equal(t, want.initialized, initialized, entry)
		require.Equal(t, want.timed, !at.IsZero(), entry)
		require.Equal(t, want.stored, device.Stored(), entry)
	}
	at, _ := byEntry["c81:0"].Initialized()
	require.GreaterOrEqual(t, time.Since(at), time.Second)
	require.Less(t, time.Since(at), 2*time.Minute)
}

// monotonic returns the clock of the times in entries.
func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return time.Duration(now.Nano())
}

// A device that is plugged in again has another inode.
func TestInode(t *testing.T) {
	root := testbed(t)
	if root == "" {
		return
	}
	inode := func() uint64 {
		devices, err := (&udevdb.Database{Root: root}).Devices("")
		require.NoError(t, err)
		for _, device := range devices {
			if device.Devpath() == camera {
				return device.Inode()
			}
		}
		return 0
	}
	before := inode()
	require.NotZero(t, before)
	require.Equal(t, before, inode())
	require.NoError(t, os.Rename(root+"/sys"+camera, root+"/sys"+camera+"-old"))
	require.NoError(t, os.CopyFS(root+"/sys"+camera, os.DirFS(root+"/sys"+camera+"-old")))
	require.NotEqual(t, before, inode())
}

func TestUdevd(t *testing.T) {
	directory := t.TempDir()
	udevd := func() [2]bool {
		running, busy := (&udevdb.Database{Runtime: directory}).Udevd()
		return [2]bool{running, busy}
	}
	queue, control := filepath.Join(directory, "queue"), filepath.Join(directory, "control")
	require.Equal(t, [2]bool{false, false}, udevd())
	require.NoError(t, os.WriteFile(queue, nil, 0o600))
	require.Equal(t, [2]bool{false, false}, udevd(), "udevd was killed")
	require.NoError(t, os.WriteFile(control, nil, 0o600))
	require.Equal(t, [2]bool{true, true}, udevd())
	require.NoError(t, os.Remove(queue))
	require.Equal(t, [2]bool{true, false}, udevd())
	require.NoError(t, os.Remove(control))
	require.Equal(t, [2]bool{false, false}, udevd())
}
