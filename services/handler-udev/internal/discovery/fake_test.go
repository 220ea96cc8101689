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
}

// pluggedDevice implements rules.Device.
type pluggedDevice struct {
	fakeDevice
	kernel *fakeKernel
}

// fakeKernel implements discovery.Database.
type fakeKernel struct {
	mu      sync.Mutex
	devices map[string]*pluggedDevice // by devpath
	listed  []string
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
	k.devices[device.Path] = &pluggedDevice{device, k}
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

func (d *pluggedDevice) Exists() bool                { return true }
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
