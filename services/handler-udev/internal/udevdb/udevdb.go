// Package udevdb reads devices from sysfs and from the udev database. It is the only package that
// uses cgo: libudev reads properties, attributes and device nodes.
package udevdb

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jochenvg/go-udev"
	"golang.org/x/sys/unix"

	"akri.sh/libs/details/udev/rules"
)

const sys = "/sys"

// Database reads the current devices. It keeps nothing between two calls.
type Database struct {
	udev udev.Udev // the first field, because go-udev sets a finalizer on its address

	// Runtime is the directory of udevd, /run/udev. Without it, udevd does not run on the node.
	Runtime string
	// Root is a directory with another sys. Only a test needs it that shows other devices to
	// libudev by replacing functions of the C library, which Go does not call.
	Root string
}

// Udevd reports whether udevd runs on the node, and whether it has events to process. The files are
// those of udev_queue_get_udev_is_active and udev_queue_get_queue_is_empty of libudev, which
// go-udev does not have.
func (d *Database) Udevd() (running, busy bool) {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(d.Runtime, name))
		return err == nil
	}
	if d.Runtime == "" || !exists("control") {
		return false, false
	}
	return true, exists("queue")
}

// Devices lists the devices at and below a devpath, or all devices for "". A device must be used by
// one goroutine only. It keeps what it has read.
func (d *Database) Devices(top string) ([]rules.Device, error) {
	paths, err := d.syspaths(top)
	if err != nil {
		return nil, err
	}
	tree := &tree{database: d, devices: make(map[string]*device, len(paths))}
	devices := make([]rules.Device, len(paths))
	for i, path := range paths {
		devices[i] = tree.device(path)
	}
	return devices, nil
}

func (d *Database) syspaths(top string) ([]string, error) {
	if top == "" {
		return allSyspaths(d.Root)
	}
	return d.syspathsBelow(sys + top)
}

// allSyspaths returns the sorted paths of the devices of all buses and classes. The enumeration of
// libudev would open each device, and go-udev frees them only in finalizers: on a machine with 390
// devices, an idle handler would have 8.2 MiB of private memory instead of 5.6, and need 0.7 ms/s
// of processor time instead of 0.3. TestDevicesAreThoseOfLibudev compares the lists.
func allSyspaths(root string) ([]string, error) {
	paths := map[string]bool{}
	var problems []error
	for _, pattern := range []string{sys + "/bus/*/devices", sys + "/class/*"} {
		directories, err := filepath.Glob(root + pattern)
		if err == nil && len(directories) == 0 {
			err = fmt.Errorf("%s%s: %w", root, pattern, fs.ErrNotExist)
		}
		problems = append(problems, err)
		for _, directory := range directories {
			problems = append(problems, addLinked(root, directory, paths))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	return slices.Sorted(maps.Keys(paths)), nil
}

// addLinked adds the devices that the symbolic links in a directory of a bus or a class point to.
// Some classes contain other files, too.
func addLinked(root, directory string, paths map[string]bool) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the driver was unloaded
	}
	for _, entry := range entries {
		if entry.Type() != fs.ModeSymlink {
			continue
		}
		target, err := os.Readlink(filepath.Join(directory, entry.Name()))
		if err != nil {
			continue // the device was removed
		}
		path := strings.TrimPrefix(filepath.Join(directory, target), root)
		if strings.HasPrefix(path, sys+"/devices/") {
			paths[path] = true
		}
	}
	return err
}

// syspathsBelow returns the paths of the devices at and below top. It is empty if top was removed.
func (d *Database) syspathsBelow(top string) ([]string, error) {
	parent := d.udev.NewDeviceFromSyspath(top)
	if parent == nil {
		return nil, nil
	}
	defer runtime.KeepAlive(parent) // go-udev does not keep it while the C library uses it
	enumerate := d.udev.NewEnumerate()
	if err := enumerate.AddMatchParent(parent); err != nil {
		return nil, fmt.Errorf("list devices below %s: %w", top, err)
	}
	paths, err := enumerate.DeviceSyspaths()
	if err != nil {
		return nil, fmt.Errorf("list devices below %s: %w", top, err)
	}
	return paths, nil
}

// Devpath returns the path without /sys of the device with an id of the udev database, such as b8:0
// or +usb:1-1.
func (d *Database) Devpath(id string) (string, bool) {
	device := d.udev.NewDeviceFromDeviceID(id)
	if device == nil {
		return "", false
	}
	return device.Devpath(), true
}

// Entry returns the name of the entry of a device in the udev database, as that of libudev's device
// ids, which go-udev does not return: b8:0, c188:0, n3 or +usb:1-1. It reads properties of the
// kernel.
func Entry(property func(key string) string) string {
	major, minor, subsystem := property("MAJOR"), property("MINOR"), property("SUBSYSTEM")
	switch {
	case major != "" && subsystem == "block":
		return "b" + major + ":" + minor
	case major != "":
		return "c" + major + ":" + minor
	case property("IFINDEX") != "":
		return "n" + property("IFINDEX")
	default:
		return "+" + subsystem + ":" + filepath.Base(property("DEVPATH"))
	}
}

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

func (d *device) Inode() uint64 {
	var stat unix.Stat_t
	if unix.Stat(filepath.Join(d.tree.database.Root, d.syspath), &stat) != nil {
		return 0 // the device was removed
	}
	return stat.Ino
}

// processing is the property that udevd, from version 258, stores until it has run the programs of
// its rules.
const processing = "ID_PROCESSING"

// Initialized uses the age of the entry, because its time is that of the monotonic clock, which Go
// does not return.
func (d *device) Initialized() (at time.Time, initialized bool) {
	if !read(d, (*udev.Device).IsInitialized) || d.Property(processing) != "" {
		return time.Time{}, false
	}
	age := read(d, (*udev.Device).UsecSinceInitialized)
	if age == 0 {
		return time.Time{}, true // udevd had nothing to store but the fact
	}
	return time.Now().Add(-time.Duration(age) * time.Microsecond), true
}

func (d *device) Entry() string { return Entry(d.Property) }

func (d *device) Stored() bool { return d.Property("MAJOR") != "" || d.Property("IFINDEX") != "" }

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

// Attributes lists the files of the device's directory.
func (d *device) Attributes() []string {
	entries, err := os.ReadDir(filepath.Join(d.tree.database.Root, d.syspath))
	if err != nil {
		return nil // the device was removed
	}
	var names []string
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	return names
}

func (d *device) Properties() []string {
	return slices.Sorted(maps.Keys(read(d, (*udev.Device).Properties)))
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
