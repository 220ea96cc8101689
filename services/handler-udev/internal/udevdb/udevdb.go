// Package udevdb reads devices from sysfs and from the udev database. It is the only package that
// uses cgo: libudev reads properties, attributes and device nodes.
package udevdb

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jochenvg/go-udev"

	"akri.sh/services/handler-udev/internal/discovery"
)

const sys = "/sys"

// Database reads the current devices. It keeps nothing between two calls.
type Database struct {
	udev udev.Udev // the first field, because go-udev sets a finalizer on its address

	// Root is a directory with another sys. Only a test needs it that shows other devices to
	// libudev by replacing functions of the C library, which Go does not call.
	Root string
}

// Devices lists the devices at and below a devpath, or all devices for "". A device must be used by
// one goroutine only. It keeps what it has read.
func (d *Database) Devices(top string) ([]discovery.Device, error) {
	paths, err := d.syspaths(top)
	if err != nil {
		return nil, err
	}
	tree := &tree{database: d, devices: make(map[string]*device, len(paths))}
	devices := make([]discovery.Device, len(paths))
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

// Devpath returns the path without /sys of the device with an id of the udev database, such as b8:0
// or +usb:1-1.
func (d *Database) Devpath(id string) (string, bool) {
	device := d.udev.NewDeviceFromDeviceID(id)
	if device == nil {
		return "", false
	}
	return device.Devpath(), true
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
