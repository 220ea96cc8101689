package selection

import (
	"maps"
	"slices"
	"strings"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/rules"
)

// Device is a device of the kernel with what a broker needs to use it.
type Device interface {
	rules.Device
	// Exists is false when it went while it was looked at.
	Exists() bool
	// Devnode is its file in /dev; empty: it has none.
	Devnode() string
	// IOMMUGroup is empty when it is in none.
	IOMMUGroup() string
}

// found is a device that is offered.
type found struct {
	devpath    string
	devnode    string
	iommuGroup string
	// properties are those of the device that matched, which may be below.
	properties map[string]string
}

// Set is what a Spec selects of the devices that the kernel has. It is told which part of the tree changed, so that an
// event costs as much as the device that it is about.
type Set struct {
	spec  Spec
	found map[string]found // by the devpath of the device that matched
}

// NewSet returns a Set that knows no device yet.
func NewSet(spec Spec) *Set { return &Set{spec: spec, found: map[string]found{}} }

// Refresh replaces what the Set knows at and below a devpath ("" is everything) with the devices that are there now.
func (s *Set) Refresh(below string, devices []Device) {
	s.Drop(below)
	for _, device := range devices {
		if s.spec.matches(device) && device.Exists() {
			offered := offer(device)
			offered.properties = s.spec.read(device)
			s.found[device.Devpath()] = offered
		}
	}
}

// Drop forgets the devices at and below a devpath.
func (s *Set) Drop(below string) {
	maps.DeleteFunc(s.found, func(devpath string, _ found) bool { return Within(below, devpath) })
}

// Within tells whether a devpath is `above` or below it; everything is below "". A device `1-1` is not above `1-10`.
func Within(above, devpath string) bool {
	rest, ok := strings.CutPrefix(devpath, above)
	return ok && (rest == "" || rest[0] == '/')
}

// offer is the device itself or, when it has no node, its first ancestor that has one: a rule often matches an
// interface of the device that a broker opens.
func offer(device Device) found {
	for next := device; next != nil; {
		if devnode := next.Devnode(); devnode != "" {
			return found{devpath: next.Devpath(), devnode: devnode, iommuGroup: next.IOMMUGroup()}
		}
		next, _ = next.Parent().(Device)
	}
	return found{devpath: device.Devpath(), iommuGroup: device.IOMMUGroup()}
}

// Devices returns what the handler says: one device per devpath or, with groupRecursive, one per top-most devpath.
func (s *Set) Devices() []*handler.Device {
	var devices []*handler.Device
	var group []found
	flush := func() {
		if len(group) > 0 {
			devices = append(devices, s.spec.describe(group))
		}
		group = nil
	}
	for _, next := range s.sorted() {
		if len(group) == 0 || !s.together(group[0].devpath, next.devpath) {
			flush()
		}
		group = append(group, next)
	}
	flush()
	return devices
}

// together tells whether a devpath is part of the device that is offered as `top`.
func (s *Set) together(top, devpath string) bool {
	return top == devpath || s.spec.groupRecursive && Within(top, devpath)
}

// sorted lists what is offered, parents directly before what is below them; what several devices stand for comes in the
// order of those.
func (s *Set) sorted() []found {
	list := make([]found, 0, len(s.found))
	for _, matched := range slices.SortedFunc(maps.Keys(s.found), inTree) {
		list = append(list, s.found[matched])
	}
	slices.SortStableFunc(list, func(a, b found) int { return inTree(a.devpath, b.devpath) })
	return list
}

// inTree sorts '/' first, so that nothing comes between a path and what is below it.
func inTree(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}
