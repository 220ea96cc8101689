package reports

import (
	"cmp"
	"slices"
	"unique"

	"akri.sh/services/instance-writer/internal/merge"
)

// Devices are the devices of a report, ordered by short name, without Node and Complete, which are
// those of the report. All nodes that share a device report the same, which is stored once.
type Devices []unique.Handle[merge.Device]

// NewDevices returns the Devices of a report.
func NewDevices(list []merge.Device) Devices {
	devices := make(Devices, 0, len(list))
	for _, device := range list {
		device.Node, device.Complete = "", false
		devices = append(devices, unique.Make(device))
	}
	slices.SortStableFunc(devices, func(a, b unique.Handle[merge.Device]) int {
		return cmp.Compare(a.Value().ShortName, b.Value().ShortName)
	})
	return devices
}

func (d Devices) find(shortName string) (at int, found bool) {
	return slices.BinarySearchFunc(d, shortName, func(device unique.Handle[merge.Device], name string) int {
		return cmp.Compare(device.Value().ShortName, name)
	})
}

// shortNames returns each short name once.
func (d Devices) shortNames() []string {
	names := make([]string, 0, len(d))
	for _, device := range d {
		names = append(names, device.Value().ShortName)
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
	for _, handle := range r.Devices[at:] {
		device := handle.Value()
		if device.ShortName != shortName {
			break
		}
		device.Node, device.Complete = node, r.Complete
		devices = append(devices, device)
	}
	return devices
}
