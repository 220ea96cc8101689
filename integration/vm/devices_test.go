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
	// rule of udev that selects the device.
	rule string
	// subsystem of the device that is offered.
	subsystem  string
	properties device
	// link of udev to the device node. A device without a device node has none.
	link   string
	noNode bool
	// read reads from the device what the test has put into it. It is nil for devices of which only
	// the identity is tested.
	read func(t *testing.T, at place, d *pluggedDevice)
	// hostNetwork is set if only Pods with the host network can read the device.
	hostNetwork bool
}

// pluggedDevice is a device with the other end of what it transfers.
type pluggedDevice struct {
	*vm.Plugged
	hub     *vm.Plugged
	line    net.Conn // of a serial adapter
	content string   // of a disk

	unplugged bool
}

// place is where a device is read: in a guest, or in a broker on it. Scripts have the properties of
// the device as variables.
type place struct {
	guest *vm.Guest
	run   func(t *testing.T, script string) string
}

// inGuest returns the guest as the place where the device is read.
func inGuest(guest *vm.Guest, d device) place {
	return place{guest, func(t *testing.T, script string) string {
		t.Helper()
		return run(t, guest, fmt.Sprintf("UDEV_DEVNODE=%s UDEV_DEVPATH=%s\n%s", d["UDEV_DEVNODE"], d["UDEV_DEVPATH"], script))
	}}
}

const (
	ttyRule    = `SUBSYSTEM=="tty", SUBSYSTEMS=="usb"`
	scsiRule   = `SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", KERNEL=="sd*"`
	cameraRule = `SUBSYSTEM=="video4linux", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"`
)

const ftdi = "Future Technology Devices International, Ltd"

var deviceCases = []deviceCase{
	{
		name: "serial", description: "USB serial adapter (ftdi_sio)", device: vm.Device{Driver: "usb-serial", Port: "1", Serial: "SERIAL1"},
		rule: ttyRule, subsystem: "tty",
		properties: device{"VENDOR_ID": "0403", "VENDOR": "QEMU", "VENDOR_NAME": ftdi, "MODEL": "QEMU_USB_SERIAL", "SERIAL": "QEMU_QEMU_USB_SERIAL_SERIAL1"},
		link:       "/dev/serial/by-id/usb-QEMU_QEMU_USB_SERIAL_SERIAL1-if00-port0", read: readLine,
	},
	{
		name: "storage", description: "USB disk", device: vm.Device{Driver: "usb-storage", Port: "2", Serial: "STORAGE1"},
		rule: scsiRule, subsystem: "block",
		properties: device{"VENDOR": "QEMU", "MODEL": "QEMU_HARDDISK", "SERIAL": "QEMU_QEMU_HARDDISK_STORAGE1-0:0"},
		link:       "/dev/disk/by-id/usb-QEMU_QEMU_HARDDISK_STORAGE1-0:0", read: readDisk,
	},
	{
		name: "keyboard", description: "USB keyboard", device: vm.Device{Driver: "usb-kbd", Port: "3", Serial: "KEYBOARD1"},
		rule: `SUBSYSTEM=="input", KERNEL=="event*", ENV{ID_INPUT_KEYBOARD}=="1", SUBSYSTEMS=="usb"`, subsystem: "input",
		properties: device{"VENDOR_ID": "0627", "VENDOR": "QEMU", "MODEL": "QEMU_USB_Keyboard", "SERIAL": "QEMU_QEMU_USB_Keyboard_KEYBOARD1"},
		link:       "/dev/input/by-id/usb-QEMU_QEMU_USB_Keyboard_KEYBOARD1-event-kbd", read: readKey,
	},
	{
		name: "audio", description: "USB sound card",
		device: vm.Device{Driver: "usb-audio", Port: "4", Serial: "AUDIO1", Options: map[string]any{"audiodev": "silence"}},
		rule:   `SUBSYSTEM=="sound", KERNEL=="controlC*"`, subsystem: "sound",
		properties: device{"VENDOR_ID": "46f4", "VENDOR": "QEMU", "MODEL": "QEMU_USB_Audio", "SERIAL": "QEMU_QEMU_USB_Audio_AUDIO1"},
		link:       "/dev/snd/by-id/usb-QEMU_QEMU_USB_Audio_AUDIO1-00", read: readCard,
	},
	{
		name: "hub", description: "USB disk behind a hub", hub: "6", device: vm.Device{Driver: "usb-storage", Port: "6.3", Serial: "HUB1"},
		rule: scsiRule, subsystem: "block",
		properties: device{"VENDOR": "QEMU", "MODEL": "QEMU_HARDDISK", "SERIAL": "QEMU_QEMU_HARDDISK_HUB1-0:0"},
		link:       "/dev/disk/by-id/usb-QEMU_QEMU_HARDDISK_HUB1-0:0", read: readDisk,
	},
	{
		name: "nvme", description: "NVMe disk", device: vm.Device{Driver: "nvme", Port: "rp1", Serial: "NVME1"},
		rule: `SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", KERNEL=="nvme*"`, subsystem: "block",
		properties: device{"MODEL": "QEMU NVMe Ctrl"},
		link:       "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_NVME1", read: readDisk,
	},
	{
		name: "virtio", description: "virtio disk", device: vm.Device{Driver: "virtio-blk-pci", Port: "rp2", Serial: "VIRTIO1"},
		rule: `SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ENV{ID_SERIAL}=="VIRTIO*"`, subsystem: "block",
		properties: device{"SERIAL": "VIRTIO1"},
		link:       "/dev/disk/by-id/virtio-VIRTIO1", read: readDisk,
	},
	{
		name: "camera", description: "camera (vivid)",
		rule: cameraRule, subsystem: "video4linux",
		add: "modprobe vivid n_devs=1 node_types=0x1 num_inputs=1 input_types=0x0", remove: "modprobe --remove vivid",
		properties: device{"CAPABILITIES": ":capture:video_overlay:", "PRODUCT": "vivid"},
		link:       "/dev/v4l/by-path/platform-vivid.0-video-index0", read: readFrame,
	},
	{
		name: "acm", description: "USB serial adapter (cdc_acm, Arduino Uno)",
		rule: ttyRule, subsystem: "tty",
		device: vm.Device{Serial: "ARD0007"}, add: addACM, remove: removeACM,
		properties: device{"VENDOR_ID": "2341", "VENDOR": "Arduino", "VENDOR_NAME": "Arduino SA", "MODEL": "Uno", "SERIAL": "Arduino_Uno_ARD0007"},
		link:       "/dev/serial/by-id/usb-Arduino_Uno_ARD0007-if00", read: readGadget,
	},
	{
		name: "i2c", description: "I²C bus (i2c-stub)",
		rule: `SUBSYSTEM=="i2c-dev", ATTR{name}=="SMBus stub driver"`, subsystem: "i2c-dev",
		add: "modprobe i2c-dev && modprobe i2c-stub chip_addr=0x50", remove: "modprobe --remove i2c-stub",
		read: readRegister,
	},
	{
		name: "tpm", description: "TPM 2.0 (tpm_vtpm_proxy)",
		rule: `SUBSYSTEM=="tpm"`, subsystem: "tpm",
		add: addTPM, remove: removeTPM, read: readRandom,
	},
	{
		name: "uvc", description: "USB camera (uvcvideo)",
		rule: cameraRule, subsystem: "video4linux",
		device: vm.Device{Serial: "CAM0042"}, add: addUVC, remove: removeUVC,
		properties: device{
			"CAPABILITIES": ":capture:", "PRODUCT": "Camera: UVC Camera", "VENDOR_ID": "046d", "VENDOR": "Example",
			"MODEL": "Camera", "SERIAL": "Example_Camera_CAM0042",
		},
		link: "/dev/v4l/by-id/usb-Example_Camera_CAM0042-video-index0",
	},
	{
		name: "can", description: "CAN card (kvaser_pci)",
		rule: `SUBSYSTEM=="pci", DRIVER=="kvaser_pci"`, subsystem: "pci",
		device:     vm.Device{Driver: "kvaser_pci", Port: "rp3"},
		properties: device{"VENDOR_NAME": "Applied Micro Circuits Corp."}, noNode: true, read: readCAN, hostNetwork: true,
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
	started := time.Now()
	plugged := c.plug(t, i.guest)
	defer c.unplug(t, i.guest, plugged) // after a failure, for the other tests
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
		c.read(t, inGuest(i.guest, found), plugged)
	}
	started = time.Now()
	c.unplug(t, i.guest, plugged)
	i.await(t)
	t.Logf("gone after %s", time.Since(started).Round(time.Millisecond))
}

// testInterface plugs a CAN card in on a node whose handler has the host network, and so finds its
// network interface.
func testInterface(t *testing.T, i *inventory) {
	var seen string
	t.Cleanup(func() {
		results.add(t, "network interface of a CAN card (kvaser_pci), with the host network", "plugged in, unplugged", seen)
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
	unplug(t, p.Plugged)
	host.await(t)
	i.await(t)
}

// listed is the name of the device in the list.
func (c deviceCase) listed() string { return c.subsystem + " " + c.device.Serial }

func (c deviceCase) plug(t *testing.T, guest *vm.Guest) *pluggedDevice {
	t.Helper()
	if c.add != "" {
		run(t, guest, "set -e\n"+c.add)
		return &pluggedDevice{}
	}
	if c.hub == "" {
		return plug(t, guest, c.device)
	}
	hub := plug(t, guest, vm.Device{Driver: "usb-hub", Port: c.hub})
	p := plug(t, guest, c.device)
	p.hub = hub.Plugged
	return p
}

// unplug unplugs the device unless it is unplugged.
func (c deviceCase) unplug(t *testing.T, guest *vm.Guest, p *pluggedDevice) {
	t.Helper()
	if p.unplugged {
		return
	}
	p.unplugged = true
	if c.remove != "" {
		run(t, guest, "set -e\n"+c.remove)
		return
	}
	unplug(t, p.Plugged)
	if p.hub != nil {
		unplug(t, p.hub)
	}
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
func readDisk(t *testing.T, at place, d *pluggedDevice) {
	t.Helper()
	require.Equal(t, strings.TrimSpace(d.content), at.run(t, fmt.Sprintf("head --bytes=%d $UDEV_DEVNODE", len(d.content))))
}

// The lines of serial adapters.
const request, response = "ready", "temperature 21.5"

// readLine sends a line from the device node and one to it.
func readLine(t *testing.T, at place, d *pluggedDevice) {
	t.Helper()
	exchangeLines(t, at, func() error { return answer(d.line) })
}

// readGadget is readLine with the adapter of a gadget. The guest has the other end of its line.
func readGadget(t *testing.T, at place, _ *pluggedDevice) {
	t.Helper()
	run(t, at.guest, "stty raw -echo </dev/ttyGS0")
	exchangeLines(t, at, func() error {
		_, err := at.guest.Run(t.Context(), `exec 4<>/dev/ttyGS0 && [ "$(timeout 60 head --lines=1 <&4)" = `+request+` ] && echo `+response+` >&4`)
		return err
	})
}

// exchangeLines sends the request from the device node, because opening it discards what it has
// received, and receives the response of the other end. In a container the node becomes the
// terminal of the shell, from which only its foreground processes may read.
func exchangeLines(t *testing.T, at place, answer func() error) {
	t.Helper()
	answered := make(chan error, 1)
	go func() { answered <- answer() }()
	defer func() { require.NoError(t, <-answered) }()
	output := at.run(t, "exec 3<>$UDEV_DEVNODE && stty raw -echo <&3 && echo "+request+" >&3 && timeout --foreground 60 head --lines=1 <&3")
	require.Equal(t, response, output)
}

// readFrame reads a frame of the test pattern, which has few bytes that are zero.
func readFrame(t *testing.T, at place, _ *pluggedDevice) {
	t.Helper()
	const size = 100_000
	output := at.run(t, fmt.Sprintf(`timeout 60 head --bytes=%d $UDEV_DEVNODE | tr --delete '\0' | wc --bytes`, size))
	require.Greater(t, parse(t, output), int64(size/2))
}

// readCard reads the description that the driver of a sound card has made of the descriptors of
// the device: the ioctl SNDRV_CTL_IOCTL_CARD_INFO with struct snd_ctl_card_info of sound/asound.h.
func readCard(t *testing.T, at place, _ *pluggedDevice) {
	t.Helper()
	output := at.run(t, `perl -e '
open(my $card, "+<", $ARGV[0]) or die "open: $!";
ioctl($card, 0x81785501, my $info = "\0" x 376) or die "CARD_INFO: $!";
my ($driver, $name) = unpack("x24 Z16 Z32", $info);
print "$driver: $name";' $UDEV_DEVNODE`)
	require.Equal(t, "USB-Audio: QEMU USB Audio", output)
}

// readRegister writes a register of the device on the bus and reads it: the ioctls I2C_SLAVE and
// I2C_SMBUS of i2c-dev, with struct i2c_smbus_ioctl_data.
func readRegister(t *testing.T, at place, _ *pluggedDevice) {
	t.Helper()
	output := at.run(t, `perl -e '
open(my $bus, "+<", $ARGV[0]) or die "open: $!";
ioctl($bus, 0x0703, 0x50) or die "I2C_SLAVE: $!";
my ($write, $read, $byte_data) = (0, 1, 2);
my $value = pack("Cx33", 0x5a);
ioctl($bus, 0x0720, my $request = pack("CCx2LP", $write, 7, $byte_data, $value)) or die "write: $!";
my $result = "\0" x 34;
ioctl($bus, 0x0720, $request = pack("CCx2LP", $read, 7, $byte_data, $result)) or die "read: $!";
printf("%#x", unpack("C", $result));' $UDEV_DEVNODE`)
	require.Equal(t, "0x5a", output)
}

// readCAN sends a frame by a socket of the card's network interface and receives it by another one.
func readCAN(t *testing.T, at place, _ *pluggedDevice) {
	t.Helper()
	output := at.run(t, `set -e
name=$(ls /sys$UDEV_DEVPATH/net)
ip link set $name type can bitrate 500000
ip link set $name up
timeout 60 perl -e '
my ($family, $raw, $can_raw) = (29, 3, 1);
socket(my $in, $family, $raw, $can_raw) && socket(my $out, $family, $raw, $can_raw) or die "socket: $!";
my $address = pack("Sx2lx16", $family, $ARGV[0]);
bind($in, $address) && bind($out, $address) or die "bind: $!";
my $frame = pack("LCx3a8", 0x123, 4, "21.5");
syswrite($out, $frame) == 16 or die "write: $!";
sysread($in, my $received, 16) == 16 or die "read: $!";
my ($id, $length, $data) = unpack("LCx3a8", $received);
printf("%#x %s", $id, substr($data, 0, $length));' $(cat /sys/class/net/$name/ifindex)`)
	require.Equal(t, "0x123 21.5", output)
}

// answer waits for the request and sends the response.
func answer(line net.Conn) error {
	if err := line.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	text, err := bufio.NewReader(line).ReadString('\n')
	if err != nil {
		return err
	}
	if text != request+"\n" {
		return fmt.Errorf("the adapter sent %q", text)
	}
	_, err = io.WriteString(line, response+"\n")
	return err
}

// readKey presses a key until the guest has read its event.
func readKey(t *testing.T, at place, _ *pluggedDevice) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pressed := make(chan error, 1)
	go func() { pressed <- press(ctx, at.guest) }()
	// An event has 24 bytes: time, type, code and value. The events of a key are its scan code
	// (EV_MSC), the key (EV_KEY, KEY_A is 30) and EV_SYN.
	output := at.run(t, "timeout 30 head --bytes=48 $UDEV_DEVNODE | od --address-radix=n --format=d2 --width=24")
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
