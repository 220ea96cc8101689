// Package udevdb reads the kernel's devices through libudev: sysfs, and the database of udev where the node has one. It
// is the only package that needs cgo.
package udevdb

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/jochenvg/go-udev"

	"akri.sh/services/handler-udev/internal/selection"
)

const (
	sys         = "/sys"
	manyHandles = 256 // some 2 KiB each
)

// Database is the kernel's devices as they are now; nothing is kept between two calls.
type Database struct {
	udev   udev.Udev    // first: go-udev wants its address to be that of the allocation
	opened atomic.Int64 // handles of devices since the last release

	// Root is a folder that holds sys; empty: the machine's. Only a testbed that shows libudev other devices, which it does
	// by way of the C library, needs it: what Go reads itself it must read there.
	Root string
}

// Devices lists the devices at and below a devpath; "" means all. The devices are for one goroutine and remember what
// they have read.
func (d *Database) Devices(top string) ([]selection.Device, error) {
	d.release()
	paths, err := d.syspaths(top)
	if err != nil {
		return nil, err
	}
	scan := &scan{database: d, known: make(map[string]*device, len(paths))}
	devices := make([]selection.Device, len(paths))
	for i, path := range paths {
		devices[i] = scan.device(path)
	}
	return devices, nil
}

func (d *Database) syspaths(top string) ([]string, error) {
	if top == "" {
		return all(d.Root)
	}
	return below(d.Root, sys+top)
}

// release lets go of libudev's handles when they have become many: go-udev does so in finalizers, and a handler makes so
// little garbage that those would run every other minute.
func (d *Database) release() {
	if d.opened.Load() > manyHandles {
		d.opened.Store(0)
		runtime.GC()
	}
}

// Devpath finds the device that a file of udev's database is about, such as `b8:0` or `+usb:1-1`.
func (d *Database) Devpath(id string) (string, bool) {
	found := d.udev.NewDeviceFromDeviceID(id)
	d.opened.Add(1)
	if found == nil {
		return "", false
	}
	return found.Devpath(), true
}

// scan is one look at the kernel's devices. Devices share their ancestors.
type scan struct {
	database *Database
	known    map[string]*device
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
		if _, err := os.Stat(filepath.Join(s.database.Root, path, "uevent")); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return s.device(path)
		}
	}
	return nil
}
