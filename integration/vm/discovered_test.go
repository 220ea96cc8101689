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
const timeout = 60 * time.Second

// details select all devices that the tests plug in. The root file system is vda.
const details = `
udevRules:
- SUBSYSTEM=="tty", SUBSYSTEMS=="usb"
- SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", KERNEL=="sd*|nvme*|vd[b-z]"
- SUBSYSTEM=="input", KERNEL=="event*", SUBSYSTEMS=="usb"
- SUBSYSTEM=="sound", KERNEL=="controlC*"
properties:
  SUBSYSTEM: SUBSYSTEM
  VENDOR_ID: ENV{ID_VENDOR_ID}
  VENDOR: ENV{ID_VENDOR}
  VENDOR_NAME: ENV{ID_VENDOR_FROM_DATABASE}
  MODEL: ENV{ID_MODEL}
  SERIAL: ENV{ID_SERIAL}
  SHORT_SERIAL: ENV{ID_SERIAL_SHORT}
  PORT: ENV{ID_PATH}
  LINKS: ENV{DEVLINKS}
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
	changed broadcast.Signal

	mu    sync.Mutex
	lists []list
	err   error // why the stream ended
}

// discover runs handler-udev in a new guest until the test ends.
func discover(t *testing.T) *inventory {
	t.Helper()
	image, binary := image(t), handler(t)
	guest := start(t, image)
	started := time.Now()
	require.NoError(t, guest.InstallBinary(t.Context(), binary, "/usr/local/bin/handler-udev"))
	t.Logf("the handler is installed after %s", time.Since(started).Round(time.Millisecond))
	// A handler with an address needs no registrar on its node to serve.
	run(t, guest, "systemd-run --unit=handler-udev handler-udev --pod-ip=10.0.2.15 --discovery-handlers-directory=/run/akri --resync-interval=1h --log-level=error")
	address, err := guest.Forward(t.Context(), 10000)
	require.NoError(t, err)

	i := &inventory{guest: guest, changed: broadcast.NewSignal()}
	i.connect(t, address)
	i.await(t)
	t.Logf("the handler lists devices after %s", time.Since(started).Round(time.Millisecond))
	return i
}

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

// connect receives lists until the test ends.
func (i *inventory) connect(t *testing.T, address string) {
	t.Helper()
	conn, err := rpc.Dial(address, prometheus.NewRegistry(), rpc.WithoutKeepalive())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done; _ = conn.Close() })
	go func() {
		defer close(done)
		err := i.receive(ctx, discoveryv0.NewDiscoveryHandlerClient(conn))
		i.mu.Lock()
		i.err = err
		i.mu.Unlock()
		i.changed.Notify()
	}()
}

func (i *inventory) receive(ctx context.Context, client discoveryv0.DiscoveryHandlerClient) error {
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

// incomplete describes the lists since a time in which a device had not all of its properties, for
// the log of the test.
func (i *inventory) incomplete(id string, complete device, since time.Time) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var first, whole time.Time
	count := 0
	for _, l := range i.lists {
		d, listed := l.devices[id]
		if !listed || l.at.Before(since) {
			continue
		}
		if first.IsZero() {
			first = l.at
		}
		if maps.Equal(d, complete) {
			whole = l.at
			break
		}
		count++
	}
	return fmt.Sprintf("listed after %s, complete after %s; %d lists with a part of the properties",
		first.Sub(since).Round(time.Millisecond), whole.Sub(since).Round(time.Millisecond), count)
}

// requireLink checks that a symbolic link to the device is a property, and leads to its device
// node.
func (i *inventory) requireLink(t *testing.T, d device, link string) {
	t.Helper()
	require.Contains(t, strings.Fields(d["LINKS"]), link)
	require.Equal(t, d["UDEV_DEVNODE"], run(t, i.guest, "readlink --canonicalize "+link))
}
