// Package rules reads udev match rules and tells which devices they match, with the semantics of udev: globs with
// alternatives in every value, and keys in the plural looked for on one and the same ancestor.
//
// It knows nothing of sysfs or libudev: a device is an interface.
package rules

import (
	"slices"
	"strings"
	"unicode"
)

// Device is one device of the kernel.
type Device interface {
	// Devpath is its path below /sys; Kernel its last element with '!' read as '/'.
	Devpath() string
	Kernel() string
	// Subsystem and Driver are empty when it has none.
	Subsystem() string
	Driver() string
	// Attribute reads a file of sysfs; false: there is none, or it cannot be read.
	Attribute(name string) (string, bool)
	// Property is empty when the device does not have it.
	Property(name string) string
	Tags() []string
	// Parent is nil at the top.
	Parent() Device
}

// Rule is a conjunction of matches.
type Rule struct {
	text    string
	own     []match
	parents []match
}

// String is the rule as it was written.
func (r Rule) String() string { return r.text }

// Matches tells whether the device matches. Matches on parents (ATTRS, DRIVERS, KERNELS, SUBSYSTEMS, TAGS) must all
// hold for the device itself or for one of its ancestors.
func (r Rule) Matches(device Device) bool {
	if !all(r.own, device) {
		return false
	}
	for ; device != nil; device = device.Parent() {
		if all(r.parents, device) {
			return true
		}
	}
	return false
}

func all(matches []match, device Device) bool {
	for _, m := range matches {
		if !m.holds(device) {
			return false
		}
	}
	return true
}

// match is one `KEY{name}=="value"`.
type match struct {
	key     key
	name    string
	negated bool
	pattern pattern
}

func (m match) holds(device Device) bool {
	switch m.key.of {
	case tag:
		return slices.ContainsFunc(device.Tags(), m.pattern.matches) != m.negated
	case attribute:
		return m.holdsAttribute(device)
	default:
		return m.says(m.key.read(device, m.name))
	}
}

func (m match) says(value string) bool { return m.pattern.matches(value) != m.negated }

// holdsAttribute is false for an attribute that does not exist, whatever the operator: so it is in udev.
func (m match) holdsAttribute(device Device) bool {
	value, exists := device.Attribute(m.name)
	if !exists {
		return false
	}
	if m.pattern.trim {
		value = strings.TrimRightFunc(value, unicode.IsSpace)
	}
	return m.says(value)
}
