package udevdb

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The enumeration of libudev opens each device and frees them when go-udev's finalizers run. On a
// machine with 490 devices, an idle handler had 8.2 MiB of private memory with it, and has 5.6 MiB
// without; its processor time was 0.7 ms/s instead of 0.3. TestDevicesAreThoseOfLibudev compares
// the lists.

// allSyspaths returns the sorted paths of the devices of all buses and classes.
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

// syspathsBelow returns the sorted paths of the devices at and below top. It is empty if top was
// removed.
func syspathsBelow(root, top string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root+top, func(directory string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed during the walk
		case err != nil:
			return err
		case entry.IsDir() && isDevice(directory):
			paths = append(paths, strings.TrimPrefix(directory, root))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list devices below %s: %w", top, err)
	}
	return paths, nil
}

// isDevice reports whether udev treats a directory as a device. It must belong to a bus or a class,
// unlike the endpoint of a USB device.
func isDevice(directory string) bool {
	_, uevent := os.Lstat(filepath.Join(directory, "uevent"))
	_, subsystem := os.Lstat(filepath.Join(directory, "subsystem"))
	return uevent == nil && subsystem == nil
}
