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

// libudev would list devices too. It opens and keeps each one for that, which for a whole machine costs several times as
// much time, and over 1 MiB; most devices are dismissed by their names.

// all are the paths of the devices that the kernel's buses and classes have, in order.
func all(root string) ([]string, error) {
	paths := map[string]bool{}
	var problems []error
	for _, pattern := range []string{sys + "/bus/*/devices", sys + "/class/*"} {
		folders, err := filepath.Glob(root + pattern)
		if err == nil && len(folders) == 0 {
			err = fmt.Errorf("%s%s: %w", root, pattern, fs.ErrNotExist)
		}
		problems = append(problems, err)
		for _, folder := range folders {
			problems = append(problems, linked(root, folder, paths))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	return slices.Sorted(maps.Keys(paths)), nil
}

// linked adds the devices that a folder of a bus or a class has links to. Some classes have other files too.
func linked(root, folder string, paths map[string]bool) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its driver was unloaded
	}
	for _, entry := range entries {
		if entry.Type() != fs.ModeSymlink {
			continue
		}
		target, err := os.Readlink(filepath.Join(folder, entry.Name()))
		if err != nil {
			continue // it is gone
		}
		path := strings.TrimPrefix(filepath.Join(folder, target), root)
		if strings.HasPrefix(path, sys+"/devices/") {
			paths[path] = true
		}
	}
	return err
}

// below are the paths of the devices at and below one, in order. None: it is gone.
func below(root, top string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root+top, func(folder string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went while it was looked at
		case err != nil:
			return err
		case entry.IsDir() && isDevice(folder):
			paths = append(paths, strings.TrimPrefix(folder, root))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list devices below %s: %w", top, err)
	}
	return paths, nil
}

// isDevice: what has neither bus nor class, such as an endpoint of a USB device, is no device to udev either.
func isDevice(folder string) bool {
	_, uevent := os.Lstat(filepath.Join(folder, "uevent"))
	_, subsystem := os.Lstat(filepath.Join(folder, "subsystem"))
	return uevent == nil && subsystem == nil
}
