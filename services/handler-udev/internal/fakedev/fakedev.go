// Package fakedev is a kernel with the devices that a test gives it.
package fakedev

import (
	"path"
	"slices"
	"strings"
	"sync"

	"akri.sh/services/handler-udev/internal/rules"
	"akri.sh/services/handler-udev/internal/selection"
)

// Device is one device; its parent is the nearest one above it in the kernel that it was added to.
type Device struct {
	Path, Node, Group, Sub string
	Attributes, Database   map[string]string
}

// plugged implements selection.Device.
type plugged struct {
	Device
	kernel *Kernel
}

// Kernel holds devices by devpath. It is a database of the inventory.
type Kernel struct {
	mu      sync.Mutex
	devices map[string]*plugged
	looks   []string
}

// NewKernel returns a kernel with these devices.
func NewKernel(devices ...Device) *Kernel {
	k := &Kernel{devices: map[string]*plugged{}}
	for _, device := range devices {
		k.Plug(device)
	}
	return k
}

// Plug adds a device.
func (k *Kernel) Plug(device Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices[device.Path] = &plugged{device, k}
}

// Unplug removes a device and all below it.
func (k *Kernel) Unplug(devpath string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other := range k.devices {
		if selection.Within(devpath, other) {
			delete(k.devices, other)
		}
	}
}

// Looks returns which parts were looked at since it was last asked.
func (k *Kernel) Looks() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	looks := k.looks
	k.looks = nil
	return looks
}

// Devices lists the devices at and below a devpath, in no useful order.
func (k *Kernel) Devices(below string) ([]selection.Device, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks = append(k.looks, below)
	var list []selection.Device
	for devpath, device := range k.devices {
		if selection.Within(below, devpath) {
			list = append(list, device)
		}
	}
	return list, nil
}

func (d *plugged) Exists() bool                { return true }
func (d *plugged) Devnode() string             { return d.Node }
func (d *plugged) IOMMUGroup() string          { return d.Group }
func (d *plugged) Devpath() string             { return d.Path }
func (d *plugged) Kernel() string              { return path.Base(d.Path) }
func (d *plugged) Subsystem() string           { return d.Sub }
func (d *plugged) Driver() string              { return "" }
func (d *plugged) Property(name string) string { return d.Database[name] }
func (d *plugged) Tags() []string              { return nil }

func (d *plugged) Attribute(name string) (string, bool) {
	value, exists := d.Attributes[name]
	return value, exists
}

// Parent is the nearest device above.
func (d *plugged) Parent() rules.Device {
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
