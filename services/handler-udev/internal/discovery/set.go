package discovery

import (
	"maps"
	"slices"
	"strings"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/rules"
)

// Set holds the devices that a Spec selects. It is updated for one part of the device tree at a
// time, so that the cost of an event does not depend on the number of devices.
type Set struct {
	spec    Spec
	matches map[string]match // by the devpath of the device that a rule matches
}

// NewSet returns an empty Set.
func NewSet(spec Spec) *Set { return &Set{spec: spec, matches: map[string]match{}} }

// Refresh replaces the content at and below a devpath with the devices that match. "" is the whole
// tree.
func (s *Set) Refresh(top string, devices []rules.Device) {
	s.Remove(top)
	for _, device := range devices {
		if s.spec.matches(device) && device.Exists() {
			found := nearestWithDevnode(device)
			found.properties = s.spec.readProperties(device)
			s.matches[device.Devpath()] = found
		}
	}
}

// Remove removes the devices at and below a devpath.
func (s *Set) Remove(top string) {
	maps.DeleteFunc(s.matches, func(devpath string, _ match) bool { return Within(top, devpath) })
}

// Within reports whether a devpath is top or below it. Every devpath is below "". 1-10 is not below
// 1-1.
func Within(top, devpath string) bool {
	rest, ok := strings.CutPrefix(devpath, top)
	return ok && (rest == "" || rest[0] == '/')
}

// Devices returns one device for each devpath. With groupRecursive, it returns one for each topmost
// devpath.
func (s *Set) Devices() []*handler.Device {
	var devices []*handler.Device
	var group []match
	flush := func() {
		if len(group) > 0 {
			devices = append(devices, s.spec.describe(group))
		}
		group = nil
	}
	for _, next := range s.sorted() {
		if len(group) == 0 || !s.sameGroup(group[0].devpath, next.devpath) {
			flush()
		}
		group = append(group, next)
	}
	flush()
	return devices
}

// sameGroup reports whether a devpath belongs to the device that is offered as top.
func (s *Set) sameGroup(top, devpath string) bool {
	return top == devpath || s.spec.groupRecursive && Within(top, devpath)
}

// sorted returns the matches in the order of the tree. Matches with the same offered devpath are in
// the order of the devices that the rules match.
func (s *Set) sorted() []match {
	list := make([]match, 0, len(s.matches))
	for _, devpath := range slices.SortedFunc(maps.Keys(s.matches), compareInTree) {
		list = append(list, s.matches[devpath])
	}
	slices.SortStableFunc(list, func(a, b match) int { return compareInTree(a.devpath, b.devpath) })
	return list
}

// compareInTree sorts '/' first, so that the descendants of a path directly follow it.
func compareInTree(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}
