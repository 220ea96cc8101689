package udevdb

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jochenvg/go-udev"

	"akri.sh/services/handler-udev/internal/rules"
)

// device reads its name and links itself and opens a libudev handle only for the rest: most rules
// reject most devices by name or subsystem, and a handle needs about 2 KiB.
type device struct {
	tree    *tree
	syspath string
	opened  bool
	handle  *udev.Device // nil if opened: the device was removed
}

func (d *device) open() *udev.Device {
	if !d.opened {
		d.handle, d.opened = d.tree.database.udev.NewDeviceFromSyspath(d.syspath), true
	}
	return d.handle
}

// read returns the result of get, or the zero value if the device was removed.
func read[T any](d *device, get func(*udev.Device) T) (value T) {
	if handle := d.open(); handle != nil {
		return get(handle)
	}
	return value
}

func (d *device) Exists() bool       { return d.open() != nil }
func (d *device) Devpath() string    { return strings.TrimPrefix(d.syspath, sys) }
func (d *device) Kernel() string     { return strings.ReplaceAll(filepath.Base(d.syspath), "!", "/") }
func (d *device) Subsystem() string  { return d.linkTarget("subsystem") }
func (d *device) Driver() string     { return d.linkTarget("driver") }
func (d *device) IOMMUGroup() string { return d.linkTarget("iommu_group") }
func (d *device) Devnode() string    { return read(d, (*udev.Device).Devnode) }

// linkTarget returns the base name of the target of a symbolic link in the device's directory.
func (d *device) linkTarget(name string) string {
	target, err := os.Readlink(filepath.Join(d.tree.database.Root, d.syspath, name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func (d *device) Property(name string) string {
	return read(d, func(handle *udev.Device) string { return handle.PropertyValue(name) })
}

// Attribute distinguishes an empty attribute from one that does not exist. go-udev does not.
func (d *device) Attribute(name string) (string, bool) {
	value := read(d, func(handle *udev.Device) string { return handle.SysattrValue(name) })
	if value != "" {
		return value, true
	}
	info, err := os.Stat(filepath.Join(d.tree.database.Root, d.syspath, name))
	return "", err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o444 != 0
}

// Tags returns the tags that the udev rules gave the device when they ran last.
func (d *device) Tags() []string {
	tags := d.Property("CURRENT_TAGS")
	if tags == "" {
		tags = d.Property("TAGS") // udev before version 247 has no CURRENT_TAGS
	}
	return strings.FieldsFunc(tags, func(r rune) bool { return r == ':' })
}

func (d *device) Parent() rules.Device {
	if parent := d.tree.parent(d.syspath); parent != nil {
		return parent
	}
	return nil
}

// tree holds the devices of one listing, so that they share their ancestors.
type tree struct {
	database *Database
	devices  map[string]*device // by path
}

func (t *tree) device(syspath string) *device {
	d, exists := t.devices[syspath]
	if !exists {
		d = &device{tree: t, syspath: syspath}
		t.devices[syspath] = d
	}
	return d
}

// parent returns the device of the nearest directory above that is a device, or nil.
func (t *tree) parent(syspath string) *device {
	for path := filepath.Dir(syspath); strings.HasPrefix(path, sys+"/devices/"); path = filepath.Dir(path) {
		_, err := os.Stat(filepath.Join(t.database.Root, path, "uevent"))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return t.device(path)
		}
	}
	return nil
}
