package discovery_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	published "akri.sh/libs/attributes"
	"akri.sh/services/handler-udev/internal/discovery"
)

// TestUSBAttributes checks that the devices of the Configuration in docs/dra.md have the properties
// that it publishes as attributes, and those of the devices' place on the PCI bus.
func TestUSBAttributes(t *testing.T) {
	const tty = other + "/1-10:1.0/ttyUSB0/tty/ttyUSB0"
	page, err := os.ReadFile("../../../../docs/dra.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "### USB devices")
	_, names, _ := strings.Cut(section, `akri.sh/attributes: "`)
	names, _, _ = strings.Cut(names, `"`)
	_, details, _ := strings.Cut(section, "discoveryDetails: |\n")
	details, _, _ = strings.Cut(details, "```")
	kernel := newFakeKernel(
		fakeDevice{Path: other, Node: "/dev/bus/usb/001/007", Sub: "usb", Attributes: map[string]string{
			"idVendor": "0403", "idProduct": "6001", "serial": "A50285BI",
		}},
		fakeDevice{Path: tty, Node: "/dev/ttyUSB0", Sub: "tty"},
		fakeDevice{Path: "/devices/pnp0/00:04/tty/ttyS0", Node: "/dev/ttyS0", Sub: "tty"},
	)
	set := discovery.NewSet(parse(t, details, nil))
	devices, err := kernel.Devices("")
	require.NoError(t, err)
	set.Refresh("", devices, nothingWaits)
	found := list(t, set)
	require.Len(t, found, 1)
	annotated, want := map[string]string{}, map[string]string{"USB_VENDOR": "0403", "USB_PRODUCT": "6001", "USB_SERIAL": "A50285BI"}
	for name := range strings.SplitSeq(names, ",") {
		annotated[name] = found[tty].properties[name]
	}
	require.Equal(t, want, published.OfProperties(annotated))
	require.Equal(t, map[string]string{published.PCIeRoot: "pci0000:00"}, published.Standard(found[tty].properties))
}

// TestSamples checks which devices the Configurations in deploy/samples select.
func TestSamples(t *testing.T) {
	usb := func(path string) fakeDevice {
		return fakeDevice{Path: path, Node: "/dev/bus/usb/001/007", Sub: "usb", Attributes: map[string]string{"idVendor": "0403", "idProduct": "6001"}}
	}
	kernel := newFakeKernel(
		usb(camera),
		fakeDevice{Path: video, Node: "/dev/video0", Sub: "video4linux", Database: map[string]string{
			"ID_V4L_CAPABILITIES": ":capture:", "ID_MODEL": "Webcam", "ID_SERIAL_SHORT": "0815",
		}},
		fakeDevice{Path: function + "/video4linux/video1", Node: "/dev/video1", Sub: "video4linux", Database: map[string]string{"ID_V4L_CAPABILITIES": ":"}},
		fakeDevice{Path: "/devices/virtual/video4linux/video2", Node: "/dev/video2", Sub: "video4linux", Database: map[string]string{"ID_V4L_CAPABILITIES": ":capture:"}},
		usb(other),
		fakeDevice{Path: other + "/1-10:1.0/ttyUSB0", Sub: "usb-serial"},
		fakeDevice{Path: other + "/1-10:1.0/ttyUSB0/tty/ttyUSB0", Node: "/dev/ttyUSB0", Sub: "tty"},
		fakeDevice{Path: "/devices/pnp0/00:04/tty/ttyS0", Node: "/dev/ttyS0", Sub: "tty"},
	)
	for sample, want := range map[string]map[string]offered{
		"udev-usb-camera": {video: {map[string]string{
			"UDEV_DEVPATH": video, "UDEV_DEVNODE": "/dev/video0", "CAMERA_MODEL": "Webcam", "CAMERA_SERIAL": "0815",
		}, []string{"/dev/video0:rw"}}},
		"udev-usb-serial": {other + "/1-10:1.0/ttyUSB0/tty/ttyUSB0": {map[string]string{
			"UDEV_DEVPATH": other + "/1-10:1.0/ttyUSB0/tty/ttyUSB0", "UDEV_DEVNODE": "/dev/ttyUSB0",
			"ADAPTER_VENDOR_ID": "0403", "ADAPTER_PRODUCT_ID": "6001",
		}, []string{"/dev/ttyUSB0:rw"}}},
		"udev-null": {}, "udev-zram": {},
	} {
		t.Run(sample, func(t *testing.T) {
			text, err := os.ReadFile("../../../../deploy/samples/" + sample + ".yaml")
			require.NoError(t, err)
			_, details, _ := strings.Cut(string(text), "discoveryDetails: |\n")
			details, _, found := strings.Cut(details, "\n  capacity")
			require.True(t, found)
			set := discovery.NewSet(parse(t, details, nil))
			devices, err := kernel.Devices("")
			require.NoError(t, err)
			set.Refresh("", devices, nothingWaits)
			require.Equal(t, want, list(t, set))
		})
	}
}
