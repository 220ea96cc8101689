// Package rules parses udev match rules and matches devices with them. It has the semantics of
// udev: values are globs with alternatives, and plural keys must all match the same ancestor.
//
// It does not use sysfs or libudev: a device is an interface.
package rules

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// Device is a device of the kernel. A value that it does not have is empty.
type Device interface {
	// Devpath is the path without /sys.
	Devpath() string
	// Kernel is the last element of the path, with '/' for each '!'.
	Kernel() string
	Subsystem() string
	Driver() string
	// Attribute reads a file of sysfs. It returns false if the file does not exist or is not
	// readable.
	Attribute(name string) (string, bool)
	// Property reads the udev database.
	Property(name string) string
	// Attributes and Properties return the names. Attributes of subdirectories are left out.
	Attributes() []string
	Properties() []string
	Tags() []string
	// Parent is nil for the root.
	Parent() Device
	// Exists returns false if the device was removed after it was listed.
	Exists() bool
	// Devnode is the path in /dev.
	Devnode() string
	// IOMMUGroup is the number of the IOMMU group.
	IOMMUGroup() string
	// Inode is the number of the device's directory in sysfs. A device that is plugged in again has
	// another one.
	Inode() uint64
	// Initialized returns when udevd initialized the device, or the zero time if udevd has not
	// stored it. It returns false while the udev database has no entry of the device and while
	// udevd still processes its first event.
	Initialized() (at time.Time, initialized bool)
	// Entry is the name of the device's entry in the udev database.
	Entry() string
	// Stored reports whether udevd always adds an entry for such a device to its database: the
	// device has a device number, or it is a network interface.
	Stored() bool
}

// Rule is a conjunction of matches.
type Rule struct {
	text    string
	own     []match
	parents []match
}

// String returns the text of the rule.
func (r Rule) String() string { return r.text }

// Matches reports whether the rule matches the device. Its plural keys (ATTRS, DRIVERS, KERNELS,
// SUBSYSTEMS, TAGS) must all match the device itself or all match the same ancestor.
func (r Rule) Matches(device Device) bool {
	if !matchAll(r.own, device) {
		return false
	}
	for ; device != nil; device = device.Parent() {
		if matchAll(r.parents, device) {
			return true
		}
	}
	return false
}

func matchAll(matches []match, device Device) bool {
	for _, m := range matches {
		if !m.matches(device) {
			return false
		}
	}
	return true
}

// match is one KEY{name}=="value" of a rule.
type match struct {
	key     key
	name    string
	negated bool
	pattern pattern
	// position and text are those in the rule, and value is that in the text.
	position    int
	text, value string
}

func (m match) matches(device Device) bool {
	switch m.key.field {
	case tag:
		return slices.ContainsFunc(device.Tags(), m.pattern.matches) != m.negated
	case attribute:
		return m.matchesAttribute(device)
	default:
		return m.matchesValue(m.key.read(device, m.name))
	}
}

func (m match) matchesValue(value string) bool { return m.pattern.matches(value) != m.negated }

// matchesAttribute returns false for a missing attribute with both operators, as udev does.
func (m match) matchesAttribute(device Device) bool {
	value, exists := m.attribute(device)
	return exists && m.matchesValue(value)
}

// attribute returns the value that the pattern is compared with.
func (m match) attribute(device Device) (value string, exists bool) {
	value, exists = device.Attribute(m.name)
	if m.pattern.trim {
		value = strings.TrimRightFunc(value, unicode.IsSpace)
	}
	return value, exists
}

// Source selects a value of a device: a key of a rule without operator and value, such as
// ATTRS{serial}.
type Source struct {
	key  key
	name string
}

// Read returns the value without trailing white space, or "". A plural key reads the device or its
// nearest ancestor with a value.
func (s Source) Read(device Device) string {
	for ; device != nil; device = device.Parent() {
		value := strings.TrimRightFunc(s.key.read(device, s.name), unicode.IsSpace)
		if value != "" || !s.key.parents {
			return value
		}
	}
	return ""
}

// read returns the value of a key's field. Tags have no single value.
func (k key) read(device Device, name string) (value string) {
	switch k.field {
	case devpath:
		return device.Devpath()
	case kernel:
		return device.Kernel()
	case subsystem:
		return device.Subsystem()
	case driver:
		return device.Driver()
	case property:
		return device.Property(name)
	case attribute:
		value, _ = device.Attribute(name)
	}
	return value
}
