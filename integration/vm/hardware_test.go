package vm_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/vm"
)

// plugs is the number of plugs of TestHardware/manyPlugs, and plugsTime limits their time.
const (
	plugs     = 100
	plugsTime = 60 * time.Second
)

// scenario is something that people and drivers do to devices. It returns what it has seen, for the
// report.
type scenario struct {
	name   string
	device string
	done   string
	run    func(*testing.T, *inventory) string
}

var scenarios = []scenario{
	{"samePort", "all but the hub", "plugged again into the same port", samePort},
	{"anotherPort", "serial adapter", "moved to another port", anotherPort},
	{"swappedAdapters", "two serial adapters", "exchanged their ports", swappedAdapters},
	{"driver", "serial adapter", "driver unbound and bound", driver},
	{"authorized", "serial adapter", "not authorized, and authorized again", authorized},
	{"reset", "serial adapter", "reset", reset},
	{"autosuspend", "serial adapter", "suspended until it is opened", autosuspend},
	{"changedMode", "serial adapter", "owner, mode and link changed by a rule while it is open", changedMode},
	{"pulledHub", "hub with a disk, a keyboard and an adapter", "pulled", pulledHub},
	{"groups", "disk, keyboard, keyboard behind a hub", "plugged twice, with `groupRecursive`", groups},
	{"manyPlugs", "serial adapters in four ports", "plugged 100 times or for one minute", manyPlugs},
	{"shortPlugs", "serial adapters", "pulled 0 to 2 s after they were plugged in", shortPlugs},
}

// udevdScenarios are those in which a list can have devices without properties of udev.
var udevdScenarios = []scenario{
	{"frozenUdevd", "serial adapter", "plugged in while udevd does not answer, which then continues", frozenUdevd},
	{"endedUdevd", "serial adapter", "plugged in without udevd, which then starts", endedUdevd},
}

// TestHardware does to devices what people and drivers do. Each scenario begins and ends without
// devices.
func TestHardware(t *testing.T) {
	i := discover(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s.test(t, i)
			i.requireSerials(t)
		})
	}
	for _, s := range udevdScenarios {
		t.Run(s.name, func(t *testing.T) { s.test(t, i) })
	}
}

func (s scenario) test(t *testing.T, i *inventory) {
	var seen string
	t.Cleanup(func() { results.add(t, s.device, s.done, seen) })
	seen = s.run(t, i)
	i.await(t)
}

func adapter(port, serial string) vm.Device {
	return vm.Device{Driver: "usb-serial", Port: port, Serial: serial}
}

// samePort plugs each device twice into the same port and reports those that get another id.
func samePort(t *testing.T, i *inventory) string {
	var same, others []string
	for _, c := range deviceCases {
		if c.hub != "" {
			continue
		}
		var ids []string
		for range 2 {
			p := c.plug(t, i.guest)
			id, _ := i.await(t, c.listed()).one(t, c.listed())
			ids = append(ids, id)
			c.unplug(t, i.guest, p)
			i.await(t)
		}
		t.Logf("%s: ids in the same port:\n%s", c.name, strings.Join(ids, "\n"))
		if ids[0] == ids[1] {
			same = append(same, c.name)
		} else {
			others = append(others, c.name)
		}
	}
	return fmt.Sprintf("same id: %s; another id: %s", strings.Join(same, ", "), strings.Join(others, ", "))
}

// anotherPort moves an adapter: one device, with the same serial number and link, and an id that
// follows the port.
func anotherPort(t *testing.T, i *inventory) string {
	first := plug(t, i.guest, adapter("1", "MOVED"))
	before, _ := i.await(t, "tty MOVED").one(t, "tty MOVED")
	unplug(t, first.Plugged)
	second := plug(t, i.guest, adapter("5", "MOVED"))
	defer unplug(t, second.Plugged)

	list := i.await(t, "tty MOVED")
	if _, old := list.devices[before]; old {
		list = i.awaitWithout(t, before, "tty MOVED")
	}
	after, found := list.one(t, "tty MOVED")
	i.requireLink(t, found, "/dev/serial/by-id/usb-QEMU_QEMU_USB_SERIAL_MOVED-if00-port0")
	readLine(t, inGuest(i.guest, found), second)
	t.Logf("id in port 1: %s\nid in port 5: %s", before, after)
	return sameID(before, after)
}

func sameID(before, after string) string {
	if before == after {
		return "same id"
	}
	return "another id"
}

// swappedAdapters exchanges two adapters. Each port then has the serial number of the other adapter
// and its line.
func swappedAdapters(t *testing.T, i *inventory) string {
	one, two := plug(t, i.guest, adapter("1", "ONE")), plug(t, i.guest, adapter("2", "TWO"))
	before, _ := i.await(t, "tty ONE", "tty TWO").one(t, "tty ONE")
	unplug(t, one.Plugged)
	unplug(t, two.Plugged)
	one, two = plug(t, i.guest, adapter("2", "ONE")), plug(t, i.guest, adapter("1", "TWO"))
	defer unplug(t, one.Plugged)
	defer unplug(t, two.Plugged)

	list := i.awaitPorts(t, map[string]string{"tty ONE": "usb-0:2:", "tty TWO": "usb-0:1:"})
	_, found := list.one(t, "tty ONE")
	readLine(t, inGuest(i.guest, found), one)
	after, found := list.one(t, "tty TWO")
	readLine(t, inGuest(i.guest, found), two)
	if before == after {
		return "each adapter has the id that the other one had"
	}
	return "ids " + before + " and " + after
}

// driver unbinds the driver of an adapter and binds it again.
func driver(t *testing.T, i *inventory) string {
	return afterChange(t, i, "DRIVER", func() {
		const files = "/sys/bus/usb/drivers/ftdi_sio/"
		run(t, i.guest, "echo 1-1:1.0 > "+files+"unbind")
		i.await(t)
		run(t, i.guest, "echo 1-1:1.0 > "+files+"bind")
	})
}

// authorized removes the authorization of a device, as USBGuard does, and gives it again.
func authorized(t *testing.T, i *inventory) string {
	return afterChange(t, i, "AUTHORIZED", func() {
		const file = "/sys/bus/usb/devices/1-1/authorized"
		run(t, i.guest, "echo 0 > "+file)
		i.await(t)
		run(t, i.guest, "echo 1 > "+file)
	})
}

// reset resets an adapter as a driver does after errors.
func reset(t *testing.T, i *inventory) string {
	return afterChange(t, i, "RESET", func() {
		run(t, i.guest, "usbreset $(printf %03d/%03d $(cat /sys/bus/usb/devices/1-1/busnum /sys/bus/usb/devices/1-1/devnum))")
		run(t, i.guest, "udevadm settle")
	})
}

// afterChange plugs in an adapter, changes it, and returns whether it has the same id and works
// afterwards.
func afterChange(t *testing.T, i *inventory, serial string, change func()) string {
	p := plug(t, i.guest, adapter("1", serial))
	defer unplug(t, p.Plugged)
	before, _ := i.await(t, "tty "+serial).one(t, "tty "+serial)

	change()

	after, found := i.await(t, "tty "+serial).one(t, "tty "+serial)
	readLine(t, inGuest(i.guest, found), p)
	return sameID(before, after)
}

// autosuspend suspends an adapter that is not used. It stays in the list, and wakes up when it is
// opened.
func autosuspend(t *testing.T, i *inventory) string {
	p := plug(t, i.guest, adapter("1", "SUSPENDED"))
	defer unplug(t, p.Plugged)
	id, found := i.await(t, "tty SUSPENDED").one(t, "tty SUSPENDED")
	started := time.Now()
	run(t, i.guest, `cd /sys/bus/usb/devices/1-1/power && echo 0 > autosuspend_delay_ms && echo auto > control
i=0; until [ $(cat runtime_status) = suspended ]; do i=$((i + 1)); [ $i -lt 300 ] || { cat runtime_status; exit 1; }; sleep 0.1; done`)
	readLine(t, inGuest(i.guest, found), p)
	i.requireStayed(t, id, started)
	return "stayed in the list"
}

// changedMode installs a rule of udev that changes the mode, the owner and a link of an adapter
// while it is used.
func changedMode(t *testing.T, i *inventory) string {
	p := plug(t, i.guest, adapter("1", "RULE"))
	defer unplug(t, p.Plugged)
	id, found := i.await(t, "tty RULE").one(t, "tty RULE")
	node := found["UDEV_DEVNODE"]
	started := time.Now()
	const rules = "/run/udev/rules.d/90-test.rules"
	run(t, i.guest, "mkdir -p /run/udev/rules.d")
	rule := `SUBSYSTEM=="tty", ENV{ID_SERIAL_SHORT}=="RULE", MODE="0600", OWNER="daemon", SYMLINK+="test/console"`
	require.NoError(t, i.guest.WriteFile(t.Context(), rules, []byte(rule+"\n")))
	run(t, i.guest, "systemd-run --unit=user --property=StandardInput=file:"+node+" sleep infinity")
	run(t, i.guest, "udevadm control --reload && udevadm trigger --action=change --settle "+node)
	i.awaitList(t, "the link of the rule", func(l list) bool {
		return strings.Contains(l.devices[id]["LINKS"], "/dev/test/console")
	})
	i.requireStayed(t, id, started)
	require.Equal(t, "600 daemon", run(t, i.guest, "stat --format='%a %U' "+node))
	run(t, i.guest, "systemctl stop user && rm "+rules+" && udevadm control --reload")
	return "stayed in the list"
}

// groups plugs devices in as groups, which have the id of the USB device: it follows the port, and
// is the same whenever the device is plugged into it.
func groups(t *testing.T, i *inventory) string {
	grouped := watch(t, i.guest, i.address, groupDetails)
	hub, err := i.guest.Plug(t.Context(), vm.Device{Driver: "usb-hub", Port: "6"})
	require.NoError(t, err)
	defer unplug(t, hub)
	for _, d := range []vm.Device{
		{Driver: "usb-storage", Port: "2", Serial: "GROUP1"}, {Driver: "usb-kbd", Port: "3", Serial: "GROUP2"},
		{Driver: "usb-kbd", Port: "6.1", Serial: "GROUP3"},
	} {
		var ids []string
		for range 2 {
			p := plug(t, i.guest, d)
			name := "usb " + d.Serial
			id, _ := grouped.await(t, name).one(t, name)
			ids = append(ids, id)
			unplug(t, p.Plugged)
			grouped.await(t)
		}
		require.Equal(t, ids[0], ids[1])
		require.Regexp(t, `/[12]-`+d.Port+`$`, ids[0])
	}
	return "same id"
}

// pulledHub pulls a hub with a disk, a keyboard and an adapter behind it.
func pulledHub(t *testing.T, i *inventory) string {
	hub, err := i.guest.Plug(t.Context(), vm.Device{Driver: "usb-hub", Port: "6"})
	require.NoError(t, err)
	behind := []*pluggedDevice{
		plug(t, i.guest, vm.Device{Driver: "usb-storage", Port: "6.1", Serial: "BEHIND1"}),
		plug(t, i.guest, vm.Device{Driver: "usb-kbd", Port: "6.2", Serial: "BEHIND2"}),
		plug(t, i.guest, adapter("6.3", "BEHIND3")),
	}
	other := plug(t, i.guest, adapter("1", "OTHER"))
	i.await(t, "block BEHIND1", "input BEHIND2", "tty BEHIND3", "tty OTHER")
	unplug(t, hub)
	i.await(t, "tty OTHER")
	for _, p := range append(behind, other) {
		unplug(t, p.Plugged)
	}
	return "the others stayed"
}

// manyPlugs plugs adapters in and out, and waits only for the last ones. An adapter is unplugged
// while the guest still enumerates the next ones.
func manyPlugs(t *testing.T, i *inventory) string {
	const ports = 4
	started := time.Now()
	var in []*pluggedDevice
	count := 0
	for ; count < plugs && time.Since(started) < plugsTime; count++ {
		if len(in) == ports {
			i.awaitName(t, "tty "+serial(count-ports))
			unplug(t, in[0].Plugged)
			in = in[1:]
		}
		in = append(in, plug(t, i.guest, adapter(fmt.Sprint(count%ports+1), serial(count))))
	}
	var names []string
	for n := range in {
		names = append(names, "tty "+serial(count-len(in)+n))
	}
	i.await(t, names...)
	i.requireOnce(t, "PLUG")
	seen := fmt.Sprintf("%d plugs in %s", count, time.Since(started).Round(time.Second))
	for _, p := range in {
		unplug(t, p.Plugged)
	}
	return seen
}

func serial(number int) string { return fmt.Sprintf("PLUG%03d", number) }

// shortPlugs pulls adapters at various times after they are plugged in, while the guest enumerates
// them or udev handles them. The last one stays.
func shortPlugs(t *testing.T, i *inventory) string {
	for n := range 20 {
		p := plug(t, i.guest, adapter("1", serial(n)))
		wait(t, time.Duration(n)*100*time.Millisecond)
		unplug(t, p.Plugged)
	}
	p := plug(t, i.guest, adapter("1", "LAST"))
	defer unplug(t, p.Plugged)
	_, found := i.await(t, "tty LAST").one(t, "tty LAST")
	readLine(t, inGuest(i.guest, found), p)
	return ""
}

// frozenUdevd plugs in an adapter while udevd is stopped by a signal. It is listed without
// properties of udev, and with them when udevd continues.
func frozenUdevd(t *testing.T, i *inventory) string {
	run(t, i.guest, "modprobe ftdi_sio && udevadm settle && systemctl kill --signal=STOP systemd-udevd")
	t.Cleanup(func() {
		_, err := i.guest.Run(context.WithoutCancel(t.Context()), "systemctl kill --signal=CONT systemd-udevd")
		require.NoError(t, err)
	})
	return listedWithoutUdevd(t, i, "FROZEN", "systemctl kill --signal=CONT systemd-udevd")
}

// endedUdevd plugs in an adapter while udevd does not run.
func endedUdevd(t *testing.T, i *inventory) string {
	const units = "systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udevd"
	const start = "systemctl start " + units + " && udevadm trigger --action=add --settle"
	run(t, i.guest, "modprobe ftdi_sio && udevadm settle && systemctl stop "+units)
	t.Cleanup(func() {
		_, err := i.guest.Run(context.WithoutCancel(t.Context()), start)
		require.NoError(t, err)
	})
	return listedWithoutUdevd(t, i, "ENDED", start)
}

// listedWithoutUdevd plugs in an adapter, which is listed without properties of udev, and then lets
// udevd work. The device has the same id then.
func listedWithoutUdevd(t *testing.T, i *inventory, serial, work string) string {
	t.Helper()
	started := time.Now()
	p := plug(t, i.guest, adapter("1", serial))
	defer unplug(t, p.Plugged)
	before, _ := i.await(t, "tty ").one(t, "tty ")
	t.Logf("listed after %s", time.Since(started).Round(time.Millisecond))

	run(t, i.guest, work)

	after, found := i.await(t, "tty "+serial).one(t, "tty "+serial)
	require.Equal(t, before, after)
	readLine(t, inGuest(i.guest, found), p)
	return "listed without properties of udev; same id with them"
}

// wait lets time pass. There is no event to wait for: the test wants to act at that time.
func wait(t *testing.T, duration time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(duration):
	}
}

// awaitName waits until a device with the name is listed, among others.
func (i *inventory) awaitName(t *testing.T, name string) {
	t.Helper()
	i.awaitList(t, "device "+name, func(l list) bool {
		for _, d := range l.devices {
			if d.name() == name {
				return true
			}
		}
		return false
	})
}

// awaitWithout waits until the devices are those with the names, and no device has the id.
func (i *inventory) awaitWithout(t *testing.T, id string, names ...string) list {
	t.Helper()
	return i.awaitList(t, "no device "+path.Base(id), func(l list) bool {
		_, listed := l.devices[id]
		return !listed && fmt.Sprint(l.names()) == fmt.Sprint(names)
	})
}

// awaitPorts waits until the devices are those with the names, each in a port.
func (i *inventory) awaitPorts(t *testing.T, ports map[string]string) list {
	t.Helper()
	return i.awaitList(t, fmt.Sprint("devices in ports ", ports), func(l list) bool {
		matching := 0
		for _, d := range l.devices {
			if port := ports[d.name()]; port != "" && strings.Contains(d["PORT"], port) {
				matching++
			}
		}
		return matching == len(ports) && len(l.devices) == len(ports)
	})
}
