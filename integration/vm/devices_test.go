package vm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/vm"
)

// deviceCase is a device with what handler-udev must report about it.
type deviceCase struct {
	name, description string
	// hub is the port of a hub that is plugged in before the device.
	hub    string
	device vm.Device
	// subsystem of the device that is offered.
	subsystem  string
	properties device
	link       string
	// read reads from the device in the guest what the test has put into it. It is nil for devices
	// that give no bytes.
	read func(t *testing.T, guest *vm.Guest, node string, d *pluggedDevice)
}

// pluggedDevice is a device with the other end of what it transfers.
type pluggedDevice struct {
	*vm.Plugged
	line    net.Conn // of a serial adapter
	content string   // of a disk
}

const ftdi = "Future Technology Devices International, Ltd"

var deviceCases = []deviceCase{
	{
		name: "serial", description: "USB serial adapter (ftdi_sio)", device: vm.Device{Driver: "usb-serial", Port: "1", Serial: "SERIAL1"}, subsystem: "tty",
		properties: device{"VENDOR_ID": "0403", "VENDOR": "QEMU", "VENDOR_NAME": ftdi, "MODEL": "QEMU_USB_SERIAL", "SERIAL": "QEMU_QEMU_USB_SERIAL_SERIAL1"},
		link:       "/dev/serial/by-id/usb-QEMU_QEMU_USB_SERIAL_SERIAL1-if00-port0", read: readLine,
	},
	{
		name: "storage", description: "USB disk", device: vm.Device{Driver: "usb-storage", Port: "2", Serial: "STORAGE1"}, subsystem: "block",
		properties: device{"VENDOR": "QEMU", "MODEL": "QEMU_HARDDISK", "SERIAL": "QEMU_QEMU_HARDDISK_STORAGE1-0:0"},
		link:       "/dev/disk/by-id/usb-QEMU_QEMU_HARDDISK_STORAGE1-0:0", read: readDisk,
	},
	{
		name: "keyboard", description: "USB keyboard", device: vm.Device{Driver: "usb-kbd", Port: "3", Serial: "KEYBOARD1"}, subsystem: "input",
		properties: device{"VENDOR_ID": "0627", "VENDOR": "QEMU", "MODEL": "QEMU_USB_Keyboard", "SERIAL": "QEMU_QEMU_USB_Keyboard_KEYBOARD1"},
		link:       "/dev/input/by-id/usb-QEMU_QEMU_USB_Keyboard_KEYBOARD1-event-kbd", read: readKey,
	},
	{
		name: "audio", description: "USB sound card",
		device:    vm.Device{Driver: "usb-audio", Port: "4", Serial: "AUDIO1", Options: map[string]any{"audiodev": "silence"}},
		subsystem: "sound", properties: device{"VENDOR_ID": "46f4", "VENDOR": "QEMU", "MODEL": "QEMU_USB_Audio", "SERIAL": "QEMU_QEMU_USB_Audio_AUDIO1"},
		link: "/dev/snd/by-id/usb-QEMU_QEMU_USB_Audio_AUDIO1-00",
	},
	{
		name: "hub", description: "USB disk behind a hub", hub: "6", device: vm.Device{Driver: "usb-storage", Port: "6.3", Serial: "HUB1"}, subsystem: "block",
		properties: device{"VENDOR": "QEMU", "MODEL": "QEMU_HARDDISK", "SERIAL": "QEMU_QEMU_HARDDISK_HUB1-0:0"},
		link:       "/dev/disk/by-id/usb-QEMU_QEMU_HARDDISK_HUB1-0:0", read: readDisk,
	},
	{
		name: "nvme", description: "NVMe disk", device: vm.Device{Driver: "nvme", Port: "rp1", Serial: "NVME1"}, subsystem: "block",
		properties: device{"MODEL": "QEMU NVMe Ctrl"},
		link:       "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_NVME1", read: readDisk,
	},
	{
		name: "virtio", description: "virtio disk", device: vm.Device{Driver: "virtio-blk-pci", Port: "rp2", Serial: "VIRTIO1"}, subsystem: "block",
		properties: device{"SERIAL": "VIRTIO1"},
		link:       "/dev/disk/by-id/virtio-VIRTIO1", read: readDisk,
	},
}

// TestDevices plugs each device in, compares what handler-udev reports with what udev must know,
// reads from the device and unplugs it.
func TestDevices(t *testing.T) {
	i := discover(t)
	for _, c := range deviceCases {
		t.Run(c.name, func(t *testing.T) { c.test(t, i) })
	}
}

func (c deviceCase) test(t *testing.T, i *inventory) {
	var seen string
	t.Cleanup(func() { results.add(t, c.description, c.done(), seen) })
	i.await(t)
	if c.hub != "" {
		hub, err := i.guest.Plug(t.Context(), vm.Device{Driver: "usb-hub", Port: c.hub})
		require.NoError(t, err)
		defer unplug(t, hub)
	}
	started := time.Now()
	plugged := plug(t, i.guest, c.device)
	name := c.subsystem + " " + c.device.Serial
	id, found := i.await(t, name).one(t, name)
	times := i.completion(id, found, started)
	t.Logf("listed after %s, complete after %s: %s: %v", times.listed, times.complete, id, found)
	seen = times.String()

	for key, value := range c.properties {
		require.Equal(t, value, found[key], key)
	}
	i.requireLink(t, found, c.link)
	if c.read != nil {
		c.read(t, i.guest, found["UDEV_DEVNODE"], plugged)
	}
	started = time.Now()
	unplug(t, plugged.Plugged)
	i.await(t)
	t.Logf("gone after %s", time.Since(started).Round(time.Millisecond))
}

// done describes the test.
func (c deviceCase) done() string {
	if c.read == nil {
		return "plugged in, unplugged"
	}
	return "plugged in, read, unplugged"
}

// plug plugs a device in until the test ends or unplug is called.
func plug(t *testing.T, guest *vm.Guest, d vm.Device) *pluggedDevice {
	t.Helper()
	p := &pluggedDevice{}
	var err error
	switch d.Driver {
	case "usb-serial":
		p.Plugged, p.line, err = guest.PlugSerial(t.Context(), d.Port, d.Serial)
	case "usb-storage", "nvme", "virtio-blk-pci":
		p.content = strings.Repeat("content of "+d.Serial+"\n", 50)
		p.Plugged, err = guest.PlugDisk(t.Context(), d, []byte(p.content))
	default:
		p.Plugged, err = guest.Plug(t.Context(), d)
	}
	require.NoError(t, err)
	return p
}

func unplug(t *testing.T, p *vm.Plugged) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, p.Unplug(ctx))
}

// readDisk compares the beginning of the disk with the content that the test wrote.
func readDisk(t *testing.T, guest *vm.Guest, node string, d *pluggedDevice) {
	t.Helper()
	require.Equal(t, strings.TrimSpace(d.content), run(t, guest, fmt.Sprintf("head --bytes=%d %s", len(d.content), node)))
}

// readLine sends a line from the device node and one to it. The guest sends first, because opening
// a serial adapter discards what it has received.
func readLine(t *testing.T, guest *vm.Guest, node string, d *pluggedDevice) {
	t.Helper()
	const sent = "temperature 21.5"
	received := make(chan error, 1)
	go func() { received <- answer(d.line, "ready\n", sent+"\n") }()
	output := run(t, guest, "exec 3<>"+node+" && stty raw -echo <&3 && echo ready >&3 && timeout 30 head --lines=1 <&3")
	require.NoError(t, <-received)
	require.Equal(t, sent, output)
}

// answer waits for a line and sends another one.
func answer(line net.Conn, request, response string) error {
	if err := line.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	text, err := bufio.NewReader(line).ReadString('\n')
	if err != nil {
		return err
	}
	if text != request {
		return fmt.Errorf("the guest sent %q", text)
	}
	_, err = io.WriteString(line, response)
	return err
}

// readKey presses a key until the guest has read its event.
func readKey(t *testing.T, guest *vm.Guest, node string, _ *pluggedDevice) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pressed := make(chan error, 1)
	go func() { pressed <- press(ctx, guest) }()
	// An event has 24 bytes: time, type, code and value. The events of a key are its scan code
	// (EV_MSC), the key (EV_KEY, KEY_A is 30) and EV_SYN.
	output := run(t, guest, "timeout 30 head --bytes=48 "+node+" | od --address-radix=n --format=d2 --width=24")
	cancel()
	require.NoError(t, <-pressed)
	lines := strings.Split(output, "\n")
	require.Len(t, lines, 2)
	fields := strings.Fields(lines[1])
	require.Equal(t, []string{"1", "30"}, fields[8:10], "type and code of the event: %s", output)
}

func press(ctx context.Context, guest *vm.Guest) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := guest.Press(ctx, "a"); err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
