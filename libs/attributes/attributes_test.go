package attributes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/attributes"
)

// The paths are those of real machines: a network adapter behind a bridge, a camera and a serial
// adapter behind a USB controller, disks, a graphics adapter, and devices without PCI. Only a PCI
// function itself has an address.
func TestStandard(t *testing.T) {
	for path, want := range map[string][2]string{
		"/devices/pci0000:00/0000:00:1d.0/0000:02:00.0/net/enp2s0":                                        {"pci0000:00"},
		"/devices/pci0000:00/0000:00:1d.0/0000:02:00.0":                                                   {"pci0000:00", "0000:02:00.0"},
		"/devices/pci0000:00/0000:00:14.0/usb1/1-3/1-3:1.0/video4linux/video0":                            {"pci0000:00"},
		"/devices/pci0000:00/0000:00:1c.0/0000:01:00.0/0000:02:04.0/usb3/3-1/3-1:1.0/ttyUSB0/tty/ttyUSB0": {"pci0000:00"},
		"/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda":                       {"pci0000:00"},
		"/devices/pci0001:80/0001:80:00.0/0001:81:00.0/nvme/nvme0/nvme0n1":                                {"pci0001:80"},
		"/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme0/nvme0n1":     {"pci0000:00"},
		"/devices/pci0000:00/0000:00:02.0":                                                                {"pci0000:00", "0000:00:02.0"},
		"/devices/platform/soc/fe980000.usb/usb1/1-1":                                                     {},
		"/devices/virtual/block/zram0":                                                                    {},
		"/devices/pci0000:00":                                                                             {},
		"":                                                                                                {},
		"/x/devices/pci0000:00/0000:00:02.0":                                                              {},
		"/devices/pci0000:00/0000:00:02.0;x":                                                              {},
	} {
		found := attributes.Standard(map[string]string{"UDEV_DEVPATH": path})
		require.Equal(t, want, [2]string{found[attributes.PCIeRoot], found[attributes.PCIBusID]}, path)
		for name, value := range found {
			require.NotEmpty(t, value, name)
		}
	}
	require.Empty(t, attributes.Standard(nil))
}

func TestOfProperties(t *testing.T) {
	require.Equal(t, map[string]string{"SERIAL": "X1", "_a": "", strings.Repeat("A", 32): strings.Repeat("x", 64)}, attributes.OfProperties(map[string]string{
		"SERIAL": "X1", "_a": "", strings.Repeat("A", 32): strings.Repeat("x", 64),
		strings.Repeat("A", 33): "", "URL": strings.Repeat("x", 65), "1A": "", "A-B": "", "": "",
	}))
	require.Empty(t, attributes.OfProperties(nil))
}
