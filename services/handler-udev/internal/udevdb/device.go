package udevdb

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/jochenvg/go-udev"

	"akri.sh/services/handler-udev/internal/rules"
)

// device opens a handle of libudev only when its path and links do not answer already: most rules dismiss most devices
// by name or subsystem, and handles are what costs memory.
type device struct {
	scan    *scan
	syspath string
	opened  bool
	handle  *udev.Device // nil when opened: the device is gone
}

func (d *device) open() *udev.Device {
	if !d.opened {
		d.handle, d.opened = d.scan.database.udev.NewDeviceFromSyspath(d.syspath), true
		d.scan.database.opened.Add(1)
	}
	return d.handle
}

// read returns what get finds, and the zero value for a device that is gone.
func read[T any](d *device, get func(*udev.Device) T) (value T) {
	if handle := d.open(); handle != nil {
		return get(handle)
	}
	return value
}

func (d *device) Exists() bool       { return d.open() != nil }
func (d *device) Devpath() string    { return strings.TrimPrefix(d.syspath, sys) }
func (d *device) Kernel() string     { return strings.ReplaceAll(filepath.Base(d.syspath), "!", "/") }
func (d *device) Subsystem() string  { return d.link("subsystem") }
func (d *device) Driver() string     { return d.link("driver") }
func (d *device) IOMMUGroup() string { return d.link("iommu_group") }
func (d *device) Devnode() string    { return read(d, (*udev.Device).Devnode) }

// link is the name of what a link of the device's folder leads to.
func (d *device) link(name string) string {
	target, err := os.Readlink(filepath.Join(d.scan.database.Root, d.syspath, name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func (d *device) Property(name string) string {
	return read(d, func(handle *udev.Device) string { return handle.PropertyValue(name) })
}

// Attribute tells an empty attribute from one that does not exist, which libudev's answer in Go does not.
func (d *device) Attribute(name string) (string, bool) {
	value := read(d, func(handle *udev.Device) string { return handle.SysattrValue(name) })
	if value != "" {
		return value, true
	}
	info, err := os.Stat(filepath.Join(d.scan.database.Root, d.syspath, name))
	return "", err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o444 != 0
}

// Tags are those that udev's rules gave the device when they last ran.
func (d *device) Tags() []string {
	tags := d.Property("CURRENT_TAGS")
	if tags == "" {
		tags = d.Property("TAGS") // written before udev told current tags from former ones
	}
	return strings.FieldsFunc(tags, func(r rune) bool { return r == ':' })
}

func (d *device) Parent() rules.Device {
	if parent := d.scan.parent(d.syspath); parent != nil {
		return parent
	}
	return nil
}
