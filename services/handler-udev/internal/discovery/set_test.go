package discovery_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
)

const (
	hub      = "/devices/pci0000:00/0000:00:14.0/usb1"
	camera   = hub + "/1-1"
	function = camera + "/1-1:1.0"
	video    = function + "/video4linux/video0"
	sound    = camera + "/1-1:1.1/sound/card1"
	other    = hub + "/1-10"
	card     = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
	virtual  = "/devices/virtual/misc/nodeless"
)

func usbAndPCI() *fakeKernel {
	return newFakeKernel(
		fakeDevice{Path: hub, Node: "/dev/bus/usb/001/001", Sub: "usb"},
		fakeDevice{Path: camera, Node: "/dev/bus/usb/001/010", Sub: "usb", Attributes: map[string]string{
			"serial": "0815\n", "product": "Webcam", "descriptors": "\x12\x01\xff", "huge": strings.Repeat("x", 4<<10),
		}},
		fakeDevice{Path: function, Sub: "usb"},
		fakeDevice{
			Path: video, Node: "/dev/video0", Sub: "video4linux",
			Attributes: map[string]string{"name": "Webcam: wide"}, Database: map[string]string{"ID_V4L_CAPABILITIES": ":capture:"},
		},
		fakeDevice{Path: sound, Sub: "sound"},
		fakeDevice{Path: sound + "/controlC1", Node: "/dev/snd/controlC1", Sub: "sound"},
		fakeDevice{Path: other, Node: "/dev/bus/usb/001/011", Sub: "usb"},
		fakeDevice{Path: card, Group: "15", Sub: "pci"},
		fakeDevice{Path: virtual, Sub: "misc"},
	)
}

// offered is the expected content of a device.
type offered struct {
	properties map[string]string
	nodes      []string // path:permissions
}

func parse(t *testing.T, details string, properties map[string][]byte) discovery.Spec {
	t.Helper()
	spec, err := discovery.ParseSpec(handler.Request{Details: details, Properties: properties})
	require.NoError(t, err)
	return spec
}

func list(t *testing.T, set *discovery.Set) map[string]offered {
	t.Helper()
	found := map[string]offered{}
	for _, device := range set.Devices() {
		var nodes []string
		for _, spec := range device.GetDeviceSpecs() {
			require.Equal(t, spec.GetHostPath(), spec.GetContainerPath())
			nodes = append(nodes, spec.GetHostPath()+":"+spec.GetPermissions())
		}
		require.NotContains(t, found, device.GetId())
		found[device.GetId()] = offered{device.GetProperties(), nodes}
	}
	return found
}

func TestOfferedDevices(t *testing.T) {
	for name, test := range map[string]struct {
		details    string
		properties map[string][]byte
		want       map[string]offered
	}{
		"no rules": {details: "udevRules: []", want: map[string]offered{}},
		"one device": {
			details: `udevRules: ['KERNEL=="video0"']`,
			want:    map[string]offered{video: {map[string]string{"UDEV_DEVPATH": video, "UDEV_DEVNODE": "/dev/video0"}, []string{"/dev/video0:rw"}}},
		},
		"two rules for one device": {
			details: "udevRules: ['KERNEL==\"video0\"', 'SUBSYSTEM==\"video4linux\"']\npermissions: r",
			want:    map[string]offered{video: {map[string]string{"UDEV_DEVPATH": video, "UDEV_DEVNODE": "/dev/video0"}, []string{"/dev/video0:r"}}},
		},
		"device node of the nearest ancestor": {
			details: `udevRules: ['KERNEL=="1-1:1.0|card1"']`,
			want:    map[string]offered{camera: {map[string]string{"UDEV_DEVPATH": camera, "UDEV_DEVNODE": "/dev/bus/usb/001/010"}, []string{"/dev/bus/usb/001/010:rw"}}},
		},
		"no device node up to the root": {
			details: `udevRules: ['KERNEL=="nodeless"']`,
			want:    map[string]offered{virtual: {map[string]string{"UDEV_DEVPATH": virtual}, nil}},
		},
		"groups, with siblings of which one name starts with the other": {
			details: "udevRules: ['KERNEL==\"1-1|1-10|video0|controlC1\"']\ngroupRecursive: true\npermissions: rwm",
			want: map[string]offered{
				camera: {map[string]string{
					"UDEV_DEVPATH": camera, "UDEV_DEVNODE_0": "/dev/bus/usb/001/010", "UDEV_DEVNODE_1": "/dev/video0", "UDEV_DEVNODE_2": "/dev/snd/controlC1",
				}, []string{"/dev/bus/usb/001/010:rwm", "/dev/video0:rwm", "/dev/snd/controlC1:rwm"}},
				other: {map[string]string{"UDEV_DEVPATH": other, "UDEV_DEVNODE_0": "/dev/bus/usb/001/011"}, []string{"/dev/bus/usb/001/011:rwm"}},
			},
		},
		"the same rules without groups": {
			details: `udevRules: ['KERNEL=="1-1|video0"']`,
			want: map[string]offered{
				camera: {map[string]string{"UDEV_DEVPATH": camera, "UDEV_DEVNODE": "/dev/bus/usb/001/010"}, []string{"/dev/bus/usb/001/010:rw"}},
				video:  {map[string]string{"UDEV_DEVPATH": video, "UDEV_DEVNODE": "/dev/video0"}, []string{"/dev/video0:rw"}},
			},
		},
		"properties of the device and of its ancestors": {
			details: `{udevRules: ['KERNEL=="video0"'], properties: {SERIAL: "ATTRS{serial}", name: "ATTR{name}", CAN: "ENV{ID_V4L_CAPABILITIES}", NONE: "ATTR{serial}", BINARY: "ATTRS{descriptors}", HUGE: "ATTRS{huge}"}}`,
			want: map[string]offered{video: {map[string]string{
				"UDEV_DEVPATH": video, "UDEV_DEVNODE": "/dev/video0", "SERIAL": "0815", "name": "Webcam: wide", "CAN": ":capture:",
			}, []string{"/dev/video0:rw"}}},
		},
		"properties of a device with the device node of an ancestor": {
			details: `{udevRules: ['KERNEL=="card1|1-1:1.0"'], properties: {WHAT: KERNEL, SERIAL: "ATTRS{serial}"}}`,
			want: map[string]offered{camera: {map[string]string{
				"UDEV_DEVPATH": camera, "UDEV_DEVNODE": "/dev/bus/usb/001/010", "WHAT": "1-1:1.0", "SERIAL": "0815",
			}, []string{"/dev/bus/usb/001/010:rw"}}},
		},
		"properties of a group, from the first device with a value": {
			details: `{udevRules: ['KERNEL=="1-1|video0"'], groupRecursive: true, properties: {PRODUCT: "ATTR{product}", NAME: "ATTR{name}", WHAT: SUBSYSTEM}}`,
			want: map[string]offered{camera: {map[string]string{
				"UDEV_DEVPATH": camera, "UDEV_DEVNODE_0": "/dev/bus/usb/001/010", "UDEV_DEVNODE_1": "/dev/video0",
				"PRODUCT": "Webcam", "NAME": "Webcam: wide", "WHAT": "usb",
			}, []string{"/dev/bus/usb/001/010:rw", "/dev/video0:rw"}}},
		},
		"KubeVirt variable of a USB device": {
			details:    `udevRules: ['KERNEL=="1-10"']`,
			properties: map[string][]byte{"devicePluginResourceName": []byte("akri.sh/udev-usb-mouse")},
			want: map[string]offered{other: {map[string]string{
				"UDEV_DEVPATH": other, "UDEV_DEVNODE": "/dev/bus/usb/001/011", "USB_RESOURCE_AKRI_SH_UDEV-USB-MOUSE": "1:11",
			}, []string{"/dev/bus/usb/001/011:rw"}}},
		},
		"KubeVirt variables of a group": {
			details:    "udevRules: ['KERNEL==\"1-1|video0\"']\ngroupRecursive: true",
			properties: map[string][]byte{"devicePluginResourceName": []byte("a/b")},
			want: map[string]offered{camera: {map[string]string{
				"UDEV_DEVPATH": camera, "UDEV_DEVNODE_0": "/dev/bus/usb/001/010", "UDEV_DEVNODE_1": "/dev/video0", "USB_RESOURCE_A_B_0": "1:10",
			}, []string{"/dev/bus/usb/001/010:rw", "/dev/video0:rw"}}},
		},
		"PCI device with passthrough": {
			details:    `udevRules: ['KERNEL=="0000:01:00.0"']`,
			properties: map[string][]byte{"devicePluginResourceName": []byte("a.b/gpu"), "vfioPassthrough": []byte(" True\n")},
			want: map[string]offered{card: {map[string]string{
				"UDEV_DEVPATH": card, "PCI_RESOURCE_A_B_GPU": "0000:01:00.0",
			}, []string{"/dev/vfio/15:rw", "/dev/vfio/vfio:rw"}}},
		},
		"PCI device without passthrough": {
			details:    `udevRules: ['KERNEL=="0000:01:00.0"']`,
			properties: map[string][]byte{"vfioPassthrough": []byte("1")},
			want:       map[string]offered{card: {map[string]string{"UDEV_DEVPATH": card}, nil}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := discovery.NewSet(parse(t, test.details, test.properties))
			devices, err := usbAndPCI().Devices("")
			require.NoError(t, err)
			set.Refresh("", devices, nothingWaits)
			require.Equal(t, test.want, list(t, set))
		})
	}
}

func TestRefreshUpdatesOnlyItsPartOfTheTree(t *testing.T) {
	set := discovery.NewSet(parse(t, `udevRules: ['KERNEL=="1-1|1-10|video0"']`, nil))
	devices, err := usbAndPCI().Devices("")
	require.NoError(t, err)
	set.Refresh("", devices, nothingWaits)
	require.Len(t, list(t, set), 3)
	set.Refresh(camera, nil, nothingWaits)
	require.Len(t, list(t, set), 1)
	require.Contains(t, list(t, set), other)
	set.Remove(other)
	require.Empty(t, list(t, set))
}

func FuzzParseSpec(f *testing.F) {
	for _, seed := range []string{`udevRules: ['KERNEL=="a"']`, "udevRules: []\ngroupRecursive: true\npermissions: rw", "udevRules: &a [*a]", "{}", `{udevRules: ['KERNEL=="video0"'], properties: {A: "ATTRS{serial}"}}`} {
		f.Add(seed, "akri.sh/x")
	}
	f.Fuzz(func(t *testing.T, details, resource string) {
		spec, err := discovery.ParseSpec(handler.Request{Details: details, Properties: map[string][]byte{"devicePluginResourceName": []byte(resource)}})
		if err != nil {
			return
		}
		set := discovery.NewSet(spec)
		devices, err := usbAndPCI().Devices("")
		require.NoError(t, err)
		set.Refresh("", devices, nothingWaits)
		for _, device := range set.Devices() {
			require.NotEmpty(t, device.GetId())
		}
	})
}
