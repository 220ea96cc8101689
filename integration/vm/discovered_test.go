package vm_test

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/vm"
)

// timeout is how long a test waits for devices. On an idle machine a device is listed after about a
// second.
const timeout = 2 * time.Minute

// details select all devices that the tests plug in.
func details() string {
	text := "udevRules:\n"
	for _, c := range deviceCases {
		text += "- " + c.rule + "\n"
	}
	return text + `properties:
  SUBSYSTEM: SUBSYSTEM
  CAPABILITIES: ENV{ID_V4L_CAPABILITIES}
  PRODUCT: ENV{ID_V4L_PRODUCT}
  VENDOR_ID: ENV{ID_VENDOR_ID}
  VENDOR: ENV{ID_VENDOR}
  VENDOR_NAME: ENV{ID_VENDOR_FROM_DATABASE}
  MODEL: ENV{ID_MODEL}
  SERIAL: ENV{ID_SERIAL}
  SHORT_SERIAL: ENV{ID_SERIAL_SHORT}
  PORT: ENV{ID_PATH}
  LINKS: ENV{DEVLINKS}
`
}

// groupDetails make one device of a USB device, except hubs, and its device nodes. The first
// property that a device of a group has is that of the USB device.
const groupDetails = `
groupRecursive: true
udevRules:
- SUBSYSTEM=="usb", ENV{DEVTYPE}=="usb_device", ATTR{bDeviceClass}!="09"
- SUBSYSTEM=="tty|block|input|sound", SUBSYSTEMS=="usb"
properties:
  SUBSYSTEM: SUBSYSTEM
  SHORT_SERIAL: ENV{ID_SERIAL_SHORT}
`

// interfaceDetails select CAN interfaces. Their names are the serial numbers of the test.
const interfaceDetails = `
udevRules:
- SUBSYSTEM=="net", KERNEL=="can*"
properties:
  SUBSYSTEM: SUBSYSTEM
  SERIAL: KERNEL
  VENDOR_NAME: ENV{ID_VENDOR_FROM_DATABASE}
`

// device is a discovered device.
type device map[string]string

// serial is the serial number that the test has given to the device.
func (d device) serial() string {
	if d["SHORT_SERIAL"] != "" {
		return d["SHORT_SERIAL"]
	}
	return d["SERIAL"]
}

// name is the subsystem and the serial number, as a test expects it.
func (d device) name() string { return d["SUBSYSTEM"] + " " + d.serial() }

// list is what the handler sent at a time: devices by id.
type list struct {
	at      time.Time
	devices map[string]device
}

func (l list) names() []string {
	var names []string
	for _, d := range l.devices {
		names = append(names, d.name())
	}
	slices.Sort(names)
	return names
}

// inventory has the lists that handler-udev in a guest sends.
type inventory struct {
	guest   *vm.Guest
	address string // of the handler
	changed broadcast.Signal

	mu    sync.Mutex
	lists []list
	err   error // why the stream ended
}

// system prints what a guest runs.
const system = `. /etc/os-release; echo "$PRETTY_NAME, kernel $(uname --kernel-release), $(uname --machine) (emulated)"`

// discover runs handler-udev in a new guest until the test ends.
func discover(t *testing.T) *inventory {
	t.Helper()
	image, binary := image(t, vm.Plain), handler(t)
	guest := start(t, image)
	results.ranOn(run(t, guest, system))
	started := time.Now()
	require.NoError(t, guest.InstallBinary(t.Context(), binary, "/usr/local/bin/handler-udev"))
	t.Logf("the handler is installed after %s", time.Since(started).Round(time.Millisecond))
	run(t, guest, handlerScript)
	address, err := guest.Forward(t.Context(), 10000)
	require.NoError(t, err)

	i := watch(t, guest, address, details())
	t.Logf("the handler lists devices after %s", time.Since(started).Round(time.Millisecond))
	return i
}

// handlerScript starts the handler as in a Pod, in a network namespace with a /sys of its own:
// events of udevd and network interfaces of the node do not reach it. A proxy forwards its port. A
// handler with an address needs no registrar on its node to serve.
const handlerScript = `set -e
ip netns add pod
ip link add pod type veth peer name eth0 netns pod
ip address add 10.1.0.1/24 dev pod && ip link set pod up
ip -n pod address add 10.1.0.2/24 dev eth0 && ip -n pod link set eth0 up && ip -n pod link set lo up
systemd-run --unit=handler-udev ip netns exec pod handler-udev --pod-ip=10.1.0.2 ` + handlerFlags + `
systemd-run --unit=proxy --socket-property=ListenStream=10.0.2.15:10000 /lib/systemd/systemd-socket-proxyd 10.1.0.2:10000`

const handlerFlags = "--discovery-handlers-directory=/run/akri --resync-interval=1h --log-level=error"

// handler builds handler-udev.
func handler(t *testing.T) string {
	t.Helper()
	root, err := binaries.Root()
	require.NoError(t, err)
	binary := filepath.Join(t.TempDir(), "handler-udev")
	command := exec.Command("go", "-C", filepath.Join(root, "services", "handler-udev"),
		"build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/handler-udev")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	return binary
}

// watch receives lists until the test ends. There must be no devices yet.
func watch(t *testing.T, guest *vm.Guest, address, details string) *inventory {
	t.Helper()
	i := &inventory{guest: guest, address: address, changed: broadcast.NewSignal()}
	conn, err := rpc.Dial(address, prometheus.NewRegistry(), rpc.WithoutKeepalive())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done; _ = conn.Close() })
	go func() {
		defer close(done)
		err := i.receive(ctx, discoveryv0.NewDiscoveryHandlerClient(conn), details)
		i.mu.Lock()
		i.err = err
		i.mu.Unlock()
		i.changed.Notify()
	}()
	i.await(t)
	return i
}

func (i *inventory) receive(ctx context.Context, client discoveryv0.DiscoveryHandlerClient, details string) error {
	for {
		stream, err := client.Discover(ctx, &discoveryv0.DiscoverRequest{DiscoveryDetails: details})
		for err == nil {
			var response *discoveryv0.DiscoverResponse
			if response, err = stream.Recv(); err == nil {
				i.add(response)
			}
		}
		// The handler may still start: QEMU accepts connections for it.
		if ctx.Err() != nil || i.received() > 0 {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (i *inventory) add(response *discoveryv0.DiscoverResponse) {
	found := list{time.Now(), map[string]device{}}
	for _, d := range response.GetDevices() {
		found.devices[d.GetId()] = d.GetProperties()
	}
	i.mu.Lock()
	i.lists = append(i.lists, found)
	i.mu.Unlock()
	i.changed.Notify()
}

func (i *inventory) received() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.lists)
}

// last is the newest list. It is empty before the first one.
func (i *inventory) last() (list, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.lists) == 0 {
		return list{}, i.err
	}
	return i.lists[len(i.lists)-1], i.err
}

// await waits until the devices are exactly those with the names, and returns them.
func (i *inventory) await(t *testing.T, names ...string) list {
	t.Helper()
	slices.Sort(names)
	return i.awaitList(t, fmt.Sprint("devices ", names), func(l list) bool { return slices.Equal(names, l.names()) })
}

// awaitList waits until the newest list meets the condition, and returns it.
func (i *inventory) awaitList(t *testing.T, expected string, condition func(list) bool) list {
	t.Helper()
	deadline := time.After(timeout)
	for {
		last, err := i.last()
		if i.received() > 0 && condition(last) {
			return last
		}
		require.NoError(t, err)
		select {
		case <-i.changed:
		case <-deadline:
			require.FailNow(t, "timeout", "expected after %s: %s\nlisted: %v", timeout, expected, last.devices)
		}
	}
}

// one returns the device with the name and its id.
func (l list) one(t *testing.T, name string) (string, device) {
	t.Helper()
	for id, d := range l.devices {
		if d.name() == name {
			return id, d
		}
	}
	require.Fail(t, "no device", "%s of %v", name, l.names())
	return "", nil
}

// completion is when a device was listed first, and when with all properties.
type completion struct{ listed, complete time.Duration }

// completion returns the times since the start at which a device was in a list.
func (i *inventory) completion(id string, complete device, start time.Time) (c completion) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, l := range i.lists {
		d, listed := l.devices[id]
		if !listed || l.at.Before(start) {
			continue
		}
		since := l.at.Sub(start).Round(time.Millisecond)
		if c.listed == 0 {
			c.listed = since
		}
		if maps.Equal(d, complete) {
			c.complete = since
			return c
		}
	}
	return c
}

func (c completion) String() string {
	if c.listed == c.complete {
		return "listed with all properties"
	}
	return "listed first with a part of its properties"
}

// requireSerials checks that every device with a serial number was in no list without it.
func (i *inventory) requireSerials(t *testing.T) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, l := range i.lists {
		for id, d := range l.devices {
			switch d["SUBSYSTEM"] {
			case "tty", "block", "input", "sound":
				require.NotEmpty(t, d.serial(), "%s: %v", id, d)
			}
		}
	}
}

// requireOnce checks that no device whose serial number has the prefix is in a list again after it
// was removed. Each was plugged in once, so that another device would have its properties.
func (i *inventory) requireOnce(t *testing.T, prefix string) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	const present, removed = 1, 2
	state := map[string]int{}
	for _, l := range i.lists {
		names := l.names()
		for _, name := range names {
			require.NotEqual(t, removed, state[name], name)
			if strings.Contains(name, " "+prefix) {
				state[name] = present
			}
		}
		for name := range state {
			if !slices.Contains(names, name) {
				state[name] = removed
			}
		}
	}
}

// requireStayed checks that the device is in all lists since the time.
func (i *inventory) requireStayed(t *testing.T, id string, since time.Time) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, l := range i.lists {
		if l.at.After(since) {
			require.Contains(t, l.devices, id)
		}
	}
}

// requireLink checks that a symbolic link to the device is a property, and leads to its device
// node.
func (i *inventory) requireLink(t *testing.T, d device, link string) {
	t.Helper()
	require.Contains(t, strings.Fields(d["LINKS"]), link)
	require.Equal(t, d["UDEV_DEVNODE"], run(t, i.guest, "readlink --canonicalize "+link))
}
