package merge

import (
	"cmp"
	"fmt"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// resolveCollisions splits the devices into those that the Instance represents and those that only
// have the same digest. The annotation of the Instance decides; without it, the first node does.
func resolveCollisions(current *akriv0.Instance, seen []Device) (accepted []Device, refusals []Refusal) {
	ordered := slices.SortedFunc(slices.Values(seen), func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	id, owner := identity(current, ordered)
	for _, device := range ordered {
		switch {
		case device.ID != id:
			refusals = append(refusals, collision(device, "device id %q has the same digest as %q; "+
				"discover one of the devices with another Configuration", device.ID, id))
		case !device.Shared && owner != device.Node:
			refusals = append(refusals, collision(device, "device id %q of node %q has the same digest as that of node %q; "+
				"discover one of the devices with another Configuration", device.ID, device.Node, owner))
		default:
			accepted = append(accepted, device)
		}
	}
	return accepted, refusals
}

// identity returns the device id that the Instance represents and the node of a local device.
func identity(current *akriv0.Instance, ordered []Device) (id, owner string) {
	if len(ordered) > 0 {
		id, owner = ordered[0].ID, ordered[0].Node
	}
	if current == nil {
		return id, owner
	}
	if annotated := current.Annotations[akriv0.DeviceIDAnnotation]; annotated != "" {
		id = annotated
	}
	if len(current.Spec.Nodes) > 0 {
		owner = slices.Min(current.Spec.Nodes)
	}
	return id, owner
}

// configurationCollision refuses all devices because the Instance belongs to another Configuration.
// Two names of Configurations can give one name of an Instance because `.` is replaced by `-`.
func configurationCollision(in Input) []Refusal {
	var refusals []Refusal
	for _, device := range in.Seen {
		refusals = append(refusals, collision(device, "Instance %q belongs to Configuration %q; rename one of the Configurations",
			in.Name, in.Current.Spec.ConfigurationName))
	}
	return refusals
}

func collision(device Device, format string, args ...any) Refusal {
	return Refusal{device, akriv0.ReasonDigestCollision, fmt.Sprintf(format, args...)}
}
