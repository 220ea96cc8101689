package discovery_test

import "fmt"

// newNode returns the devices of a node: disks, terminals, a camera and an adapter on a hub, and
// devices of memory.
func newNode() *fakeKernel {
	const (
		pci = "/devices/pci0000:00"
		hub = pci + "/0000:00:14.0/usb1/1-4"
		cam = hub + "/1-4.1"
		tty = hub + "/1-4.2"
	)
	kernel := newFakeKernel(
		fakeDevice{Path: pci + "/0000:00:14.0", Sub: "pci", Driver: "xhci_hcd", Attributes: attributes("vendor", "0x8086", "class", "0x0c0330")},
		fakeDevice{Path: pci + "/0000:00:02.0", Sub: "pci", Driver: "i915", Attributes: attributes("vendor", "0x8086", "class", "0x030000")},
		fakeDevice{Path: pci + "/0000:01:00.0", Sub: "pci", Driver: "vfio-pci", Attributes: attributes("vendor", "0x10de", "class", "0x030000")},
		fakeDevice{Path: pci + "/0000:00:14.0/usb1", Node: "/dev/bus/usb/001/001", Sub: "usb", Driver: "usb", Attributes: attributes("idVendor", "1d6b", "idProduct", "0002")},
		fakeDevice{Path: hub, Node: "/dev/bus/usb/001/002", Sub: "usb", Driver: "usb", Attributes: attributes("idVendor", "2109", "idProduct", "3431", "product", "USB2.0 Hub")},
		fakeDevice{Path: cam, Node: "/dev/bus/usb/001/003", Sub: "usb", Driver: "usb",
			Attributes: attributes("idVendor", "046d", "idProduct", "0825", "serial", "4CAF7E1F", "product", "HD Webcam C270")},
		fakeDevice{Path: cam + "/1-4.1:1.0", Sub: "usb", Driver: "uvcvideo", Attributes: attributes("bInterfaceClass", "0e")},
		fakeDevice{Path: tty, Node: "/dev/bus/usb/001/004", Sub: "usb", Driver: "usb", Attributes: attributes("idVendor", "0403", "idProduct", "6001", "serial", "A50285BI")},
		fakeDevice{Path: tty + "/1-4.2:1.0", Sub: "usb", Driver: "ftdi_sio", Attributes: attributes("bInterfaceClass", "ff")},
		fakeDevice{Path: tty + "/1-4.2:1.0/ttyUSB0", Sub: "usb-serial", Driver: "ftdi_sio"},
		withNode(tty+"/1-4.2:1.0/ttyUSB0/tty/ttyUSB0", "tty", "ttyUSB0", nil, "ID_VENDOR_ID", "0403", "ID_BUS", "usb"),
		withNode("/devices/virtual/misc/hw_random", "misc", "hwrng", nil),
		withNode("/devices/virtual/misc/tun", "misc", "net/tun", nil),
		fakeDevice{Path: "/devices/virtual/net/lo", Sub: "net", Attributes: attributes("address", "00:00:00:00:00:00")},
		fakeDevice{Path: "/devices/pci0000:00/0000:00:1f.6/net/eth0", Sub: "net", Attributes: attributes("address", "52:54:00:12:34:56")},
	)
	for i := range 2 {
		name := fmt.Sprint("video", i)
		camera := withNode(cam+"/1-4.1:1.0/video4linux/"+name, "video4linux", name, attributes("name", "HD Webcam C270", "index", fmt.Sprint(i)),
			"ID_V4L_PRODUCT", "HD Webcam C270", "ID_V4L_CAPABILITIES", []string{":capture:", ":"}[i])
		camera.Tags = []string{"uaccess", "seat"}
		kernel.plug(camera)
	}
	for i := range 200 {
		kernel.plug(blockDevice("/devices/virtual/block/", fmt.Sprint("loop", i), 0))
	}
	for i := range 4 {
		kernel.plug(blockDevice("/devices/virtual/block/", fmt.Sprint("zram", i), 1<<i))
	}
	for _, name := range []string{"sda", "sdb"} {
		kernel.plug(blockDevice(pci+"/0000:00:17.0/ata1/block/", name, 500118192))
		kernel.plug(blockDevice(pci+"/0000:00:17.0/ata1/block/"+name+"/", name+"1", 2048))
	}
	for i := range 64 {
		name := fmt.Sprint("tty", i)
		kernel.plug(withNode("/devices/virtual/tty/"+name, "tty", name, nil))
	}
	kernel.plug(withNode("/devices/pnp0/00:04/tty/ttyS0", "tty", "ttyS0", attributes("type", "4")))
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "kmsg"} {
		kernel.plug(withNode("/devices/virtual/mem/"+name, "mem", name, nil))
	}
	for i := range 9 {
		kernel.plug(fakeDevice{Path: fmt.Sprintf("/devices/virtual/net/veth%dab%d", i, 9*i), Sub: "net"})
	}
	return kernel
}

// attributes returns a map of names and values.
func attributes(pairs ...string) map[string]string {
	list := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		list[pairs[i]] = pairs[i+1]
	}
	return list
}

// withNode returns a device with a device node.
func withNode(path, subsystem, name string, files map[string]string, properties ...string) fakeDevice {
	properties = append(properties, "DEVNAME", "/dev/"+name)
	return fakeDevice{Path: path, Node: "/dev/" + name, Sub: subsystem, Attributes: files, Database: attributes(properties...)}
}

func blockDevice(directory, name string, size int) fakeDevice {
	return withNode(directory+name, "block", name, attributes("size", fmt.Sprint(size), "ro", "0", "removable", "0"), "DEVTYPE", "disk")
}
