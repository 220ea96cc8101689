package reports

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"unique"

	"akri.sh/services/instance-writer/internal/merge"
)

// Devices are the devices of a report, ordered by short name. A short name has several devices only
// if their digests collide. All nodes that share a device report the same, which is stored once.
type Devices []device

type device struct {
	shortName unique.Handle[string]
	// Node and Complete are those of the report.
	unique.Handle[merge.Device]
}

// NewDevices returns the Devices by the short name of their Instance. Node and Complete are those
// of the report.
func NewDevices(byShortName map[string][]merge.Device) Devices {
	devices := make(Devices, 0, len(byShortName))
	for _, name := range slices.Sorted(maps.Keys(byShortName)) {
		for _, d := range byShortName[name] {
			d.Node, d.Complete = "", false
			devices = append(devices, device{unique.Make(name), unique.Make(d)})
		}
	}
	return devices
}

// All returns the short names and ids of the devices.
func (d Devices) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, device := range d {
			if !yield(device.shortName.Value(), device.Value().ID) {
				return
			}
		}
	}
}

func (d Devices) find(shortName string) (at int, found bool) {
	return slices.BinarySearchFunc(d, shortName, func(d device, name string) int { return cmp.Compare(d.shortName.Value(), name) })
}

// shortNames returns each short name once.
func (d Devices) shortNames() []string {
	names := make([]string, 0, len(d))
	for _, device := range d {
		names = append(names, device.shortName.Value())
	}
	return slices.Compact(names)
}

func (d Devices) has(shortName string) bool {
	_, found := d.find(shortName)
	return found
}

// of returns the devices of the node's report with the short name.
func (r *Report) of(node, shortName string) (devices []merge.Device) {
	at, _ := r.Devices.find(shortName)
	for _, d := range r.Devices[at:] {
		if d.shortName.Value() != shortName {
			break
		}
		seen := d.Value()
		seen.Node, seen.Complete = node, r.Complete
		devices = append(devices, seen)
	}
	return devices
}
