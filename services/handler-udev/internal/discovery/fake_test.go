package discovery_test

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"akri.sh/libs/details/udev/rules"
	"akri.sh/services/handler-udev/internal/discovery"
)

// fakeDevice describes a device. Its parent is the nearest device above it in the same fakeKernel.
type fakeDevice struct {
	Path, Node, Group, Sub, Driver string
	Attributes, Database           map[string]string
	Tags                           []string
	// Initialized is when udevd initialized the device, EntryName the name of its entry, and
	// Unstored a device without a number.
	Initialized time.Time
	EntryName   string
	Unstored    bool
}

// pluggedDevice implements rules.Device.
type pluggedDevice struct {
	fakeDevice
	kernel *fakeKernel
	inode  uint64
}

// fakeKernel implements discovery.Database.
type fakeKernel struct {
	mu      sync.Mutex
	devices map[string]*pluggedDevice // by devpath
	listed  []string
	plugged uint64
	running bool          // whether udevd runs
	busy    bool          // whether udevd has events to process
	delay   time.Duration // of reading a subsystem
}

func newFakeKernel(devices ...fakeDevice) *fakeKernel {
	k := &fakeKernel{devices: map[string]*pluggedDevice{}}
	for _, device := range devices {
		k.plug(device)
	}
	return k
}

func (k *fakeKernel) plug(device fakeDevice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugged++
	k.devices[device.Path] = &pluggedDevice{device, k, k.plugged}
}

// unplug removes a device and all below it.
func (k *fakeKernel) unplug(devpath string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other := range k.devices {
		if discovery.Within(devpath, other) {
			delete(k.devices, other)
		}
	}
}

// listings returns the arguments of Devices since the last call of listings.
func (k *fakeKernel) listings() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	listed := k.listed
	k.listed = nil
	return listed
}

// Devices lists the devices at and below a devpath in random order.
func (k *fakeKernel) Devices(top string) ([]rules.Device, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listed = append(k.listed, top)
	var list []rules.Device
	for devpath, device := range k.devices {
		if discovery.Within(top, devpath) {
			list = append(list, device)
		}
	}
	return list, nil
}

// Udevd implements discovery.Database.
func (k *fakeKernel) Udevd() (running, busy bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running, k.busy
}

// setUdevd makes udevd run or end, with or without events to process.
func (k *fakeKernel) setUdevd(running, busy bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running, k.busy = running, busy
}

// initialize sets what the database of udevd has of a device. It does not change devices that were
// listed before.
func (k *fakeKernel) initialize(devpath string, at time.Time, database map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := *k.devices[devpath]
	changed.fakeDevice.Initialized, changed.Database = at, database
	k.devices[devpath] = &changed
}

// rename moves a device, as udevd does with network interfaces.
func (k *fakeKernel) rename(from, to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	moved := *k.devices[from]
	moved.Path = to
	delete(k.devices, from)
	k.devices[to] = &moved
}

// nothingWaits is for tests without udevd.
func nothingWaits(rules.Device) bool { return false }

func (d *pluggedDevice) Exists() bool  { return true }
func (d *pluggedDevice) Inode() uint64 { return d.inode }
func (d *pluggedDevice) Entry() string { return d.EntryName }
func (d *pluggedDevice) Stored() bool  { return !d.Unstored }
func (d *pluggedDevice) Initialized() (time.Time, bool) {
	return d.fakeDevice.Initialized, !d.fakeDevice.Initialized.IsZero()
}
func (d *pluggedDevice) Devnode() string             { return d.Node }
func (d *pluggedDevice) IOMMUGroup() string          { return d.Group }
func (d *pluggedDevice) Devpath() string             { return d.Path }
func (d *pluggedDevice) Kernel() string              { return path.Base(d.Path) }
func (d *pluggedDevice) Driver() string              { return d.fakeDevice.Driver }
func (d *pluggedDevice) Property(name string) string { return d.Database[name] }
func (d *pluggedDevice) Tags() []string              { return d.fakeDevice.Tags }
func (d *pluggedDevice) Attributes() []string {
	return slices.Sorted(maps.Keys(d.fakeDevice.Attributes))
}
func (d *pluggedDevice) Properties() []string { return slices.Sorted(maps.Keys(d.Database)) }

func (d *pluggedDevice) Subsystem() string {
	if d.kernel.delay > 0 {
		<-time.After(d.kernel.delay)
	}
	return d.Sub
}

func (d *pluggedDevice) Attribute(name string) (string, bool) {
	value, exists := d.fakeDevice.Attributes[name]
	return value, exists
}

// Parent is the nearest device above.
func (d *pluggedDevice) Parent() rules.Device {
	d.kernel.mu.Lock()
	defer d.kernel.mu.Unlock()
	segments := strings.Split(d.Path, "/")
	for n := range slices.Backward(segments) {
		if parent, ok := d.kernel.devices[strings.Join(segments[:n], "/")]; ok {
			return parent
		}
	}
	return nil
}
