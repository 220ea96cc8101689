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
	// add and remove are scripts for devices that the kernel of the guest emulates.
	add, remove string
	// subsystem of the device that is offered.
	subsystem  string
	properties device
	// link of udev to the device node. A device without a device node has none.
	link   string
	noNode bool
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
	{
		name: "camera", description: "camera (vivid)", subsystem: "video4linux",
		add: "modprobe vivid n_devs=1 node_types=0x1 num_inputs=1 input_types=0x0", remove: "modprobe --remove vivid",
		properties: device{"CAPABILITIES": ":capture:video_overlay:", "PRODUCT": "vivid"},
		link:       "/dev/v4l/by-path/platform-vivid.0-video-index0", read: readFrame,
	},
	{
		name: "acm", description: "USB serial adapter (cdc_acm, Arduino Uno)", subsystem: "tty",
		device: vm.Device{Serial: "ARD0007"}, add: addACM, remove: removeACM,
		properties: device{"VENDOR_ID": "2341", "VENDOR": "Arduino", "VENDOR_NAME": "Arduino SA", "MODEL": "Uno", "SERIAL": "Arduino_Uno_ARD0007"},
		link:       "/dev/serial/by-id/usb-Arduino_Uno_ARD0007-if00", read: readGadget,
	},
	{
		name: "i2c", description: "I²C bus (i2c-stub)", subsystem: "i2c-dev",
		add: "modprobe i2c-dev && modprobe i2c-stub chip_addr=0x50", remove: "modprobe --remove i2c-stub",
		read: readRegister,
	},
	{
		name: "tpm", description: "TPM 2.0 (tpm_vtpm_proxy)", subsystem: "tpm",
		add: addTPM, remove: removeTPM, read: readRandom,
	},
	{
		name: "can", description: "CAN card (kvaser_pci), from a Pod without the host network", subsystem: "pci",
		device:     vm.Device{Driver: "kvaser_pci", Port: "rp3"},
		properties: device{"VENDOR_NAME": "Applied Micro Circuits Corp."}, noNode: true,
	},
}

// TestDevices plugs each device in, compares what handler-udev reports with what udev must know,
// reads from the device and unplugs it.
func TestDevices(t *testing.T) {
	i := discover(t)
	for _, c := range deviceCases {
		t.Run(c.name, func(t *testing.T) { c.test(t, i) })
	}
	t.Run("interface", func(t *testing.T) { testInterface(t, i) })
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
	plugged := c.plug(t, i.guest)
	unplugged := false
	defer func() {
		if !unplugged {
			c.unplug(t, i.guest, plugged) // after a failure, for the other tests
		}
	}()
	id, found := i.await(t, c.listed()).one(t, c.listed())
	times := i.completion(id, found, started)
	t.Logf("listed after %s, complete after %s: %s: %v", times.listed, times.complete, id, found)
	seen = times.String()
	require.Equal(t, times.complete, times.listed, "the device was listed with a part of its properties")

	for key, value := range c.properties {
		require.Equal(t, value, found[key], key)
	}
	require.Equal(t, c.noNode, found["UDEV_DEVNODE"] == "")
	if c.link != "" {
		i.requireLink(t, found, c.link)
	}
	if c.read != nil {
		c.read(t, i.guest, found["UDEV_DEVNODE"], plugged)
	}
	started = time.Now()
	unplugged = true
	c.unplug(t, i.guest, plugged)
	i.await(t)
	t.Logf("gone after %s", time.Since(started).Round(time.Millisecond))
}

// testInterface plugs a CAN card in on a node whose handler has the host network. Its network
// interface has no device node, so that a Pod that uses it needs the host network, too.
func testInterface(t *testing.T, i *inventory) {
	var seen string
	t.Cleanup(func() {
		results.add(t, "network interface of a CAN card (kvaser_pci), with the host network", "plugged in, read, unplugged", seen)
	})
	i.await(t)
	run(t, i.guest, "systemd-run --unit=handler-udev-host handler-udev --pod-ip=10.0.2.15 --port=10001 "+handlerFlags)
	address, err := i.guest.Forward(t.Context(), 10001)
	require.NoError(t, err)
	host := watch(t, i.guest, address, interfaceDetails)

	started := time.Now()
	p := plug(t, i.guest, vm.Device{Driver: "kvaser_pci", Port: "rp3"})
	id, found := host.await(t, "net can0").one(t, "net can0")
	times := host.completion(id, found, started)
	seen = times.String()
	require.Equal(t, times.complete, times.listed, "the interface was listed with a part of its properties")
	require.Empty(t, found["UDEV_DEVNODE"])
	require.Equal(t, "Applied Micro Circuits Corp.", found["VENDOR_NAME"])
	readCAN(t, i.guest, "can0")
	unplug(t, p.Plugged)
	host.await(t)
	i.await(t)
}

// readCAN sends a frame by a socket of the interface and receives it by another one.
func readCAN(t *testing.T, guest *vm.Guest, name string) {
	t.Helper()
	output := run(t, guest, "set -e\nip link set "+name+" type can bitrate 500000\nip link set "+name+` up
timeout 60 perl -e '
my ($family, $raw, $can_raw) = (29, 3, 1);
socket(my $in, $family, $raw, $can_raw) && socket(my $out, $family, $raw, $can_raw) or die "socket: $!";
my $address = pack("Sx2lx16", $family, $ARGV[0]);
bind($in, $address) && bind($out, $address) or die "bind: $!";
my $frame = pack("LCx3a8", 0x123, 4, "21.5");
syswrite($out, $frame) == 16 or die "write: $!";
sysread($in, my $received, 16) == 16 or die "read: $!";
my ($id, $length, $data) = unpack("LCx3a8", $received);
printf("%#x %s", $id, substr($data, 0, $length));' $(cat /sys/class/net/`+name+"/ifindex)")
	require.Equal(t, "0x123 21.5", output)
}

// listed is the name of the device in the list.
func (c deviceCase) listed() string { return c.subsystem + " " + c.device.Serial }

func (c deviceCase) plug(t *testing.T, guest *vm.Guest) *pluggedDevice {
	t.Helper()
	if c.add == "" {
		return plug(t, guest, c.device)
	}
	run(t, guest, "set -e\n"+c.add)
	return nil
}

func (c deviceCase) unplug(t *testing.T, guest *vm.Guest, p *pluggedDevice) {
	t.Helper()
	if c.remove == "" {
		unplug(t, p.Plugged)
		return
	}
	run(t, guest, "set -e\n"+c.remove)
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
	case "kvaser_pci":
		p.Plugged, err = guest.PlugCAN(t.Context(), d)
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

// readFrame reads a frame of the test pattern, which has few bytes that are zero.
func readFrame(t *testing.T, guest *vm.Guest, node string, _ *pluggedDevice) {
	t.Helper()
	const size = 100_000
	output := run(t, guest, fmt.Sprintf(`timeout 60 head --bytes=%d %s | tr --delete '\0' | wc --bytes`, size, node))
	require.Greater(t, parse(t, output), int64(size/2))
}

// readGadget sends a line in both directions between the device node and the gadget.
func readGadget(t *testing.T, guest *vm.Guest, node string, _ *pluggedDevice) {
	t.Helper()
	output := run(t, guest, `exec 3<>`+node+` 4<>/dev/ttyGS0 && stty raw -echo <&3 && stty raw -echo <&4
echo temperature 21.5 >&4 && timeout 30 head --lines=1 <&3
echo ready >&3 && timeout 30 head --lines=1 <&4`)
	require.Equal(t, "temperature 21.5\nready", output)
}

// readRegister writes a register of the device on the bus and reads it: the ioctls I2C_SLAVE and
// I2C_SMBUS of i2c-dev, with struct i2c_smbus_ioctl_data.
func readRegister(t *testing.T, guest *vm.Guest, node string, _ *pluggedDevice) {
	t.Helper()
	output := run(t, guest, `perl -e '
open(my $bus, "+<", $ARGV[0]) or die "open: $!";
ioctl($bus, 0x0703, 0x50) or die "I2C_SLAVE: $!";
my ($write, $read, $byte_data) = (0, 1, 2);
my $value = pack("Cx33", 0x5a);
ioctl($bus, 0x0720, my $request = pack("CCx2LP", $write, 7, $byte_data, $value)) or die "write: $!";
my $result = "\0" x 34;
ioctl($bus, 0x0720, $request = pack("CCx2LP", $read, 7, $byte_data, $result)) or die "read: $!";
printf("%#x", unpack("C", $result));' `+node)
	require.Equal(t, "0x5a", output)
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
