// Package udevdb reads the kernel's devices through libudev: sysfs, and the database of udev where the node has one. It
// is the only package that needs cgo.
package udevdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/jochenvg/go-udev"

	"akri.sh/services/handler-udev/internal/selection"
)

const sys = "/sys"

// Database is the kernel's devices as they are now; nothing is kept between two calls.
type Database struct {
	udev udev.Udev // first: go-udev wants its address to be that of the allocation

	// Root is a folder that holds sys; empty: the machine's. Only a testbed that shows libudev other devices, which it does
	// by way of the C library, needs it: what Go reads itself it must read there.
	Root string
}

// Devices lists the devices at and below a devpath; "" means all. The devices are for one goroutine and remember what
// they have read.
func (d *Database) Devices(below string) ([]selection.Device, error) {
	paths, err := d.syspaths(below)
	if err != nil {
		return nil, err
	}
	scan := &scan{root: d.Root, udev: &d.udev, known: make(map[string]*device, len(paths))}
	devices := make([]selection.Device, len(paths))
	for i, path := range paths {
		devices[i] = scan.device(path)
	}
	return devices, nil
}

func (d *Database) syspaths(below string) ([]string, error) {
	enumerate := d.udev.NewEnumerate()
	if below != "" {
		top := d.udev.NewDeviceFromSyspath(sys + below)
		if top == nil {
			return nil, nil // it is gone
		}
		if err := enumerate.AddMatchParent(top); err != nil {
			return nil, fmt.Errorf("enumerate devices below %q: %w", below, err)
		}
	}
	paths, err := enumerate.DeviceSyspaths()
	if err != nil {
		return nil, fmt.Errorf("enumerate devices: %w", err)
	}
	if below == "" {
		// libudev keeps every device that it listed, over 1 MiB, until go-udev's finalizer lets go of the list. A handler
		// makes so little garbage that this would be the case every other minute, by when there are several.
		runtime.GC()
	}
	return paths, nil
}

// Devpath finds the device that a file of udev's database is about, such as `b8:0` or `+usb:1-1`.
func (d *Database) Devpath(id string) (string, bool) {
	found := d.udev.NewDeviceFromDeviceID(id)
	if found == nil {
		return "", false
	}
	return found.Devpath(), true
}

// scan is one look at the kernel's devices. Devices share their ancestors.
type scan struct {
	root  string
	udev  *udev.Udev
	known map[string]*device
}

func (s *scan) device(syspath string) *device {
	known, ok := s.known[syspath]
	if !ok {
		known = &device{scan: s, syspath: syspath}
		s.known[syspath] = known
	}
	return known
}

// parent is the next folder above that is a device.
func (s *scan) parent(syspath string) *device {
	for path := filepath.Dir(syspath); strings.HasPrefix(path, sys+"/devices/"); path = filepath.Dir(path) {
		if _, err := os.Stat(filepath.Join(s.root, path, "uevent")); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return s.device(path)
		}
	}
	return nil
}
