package merge

import (
	"cmp"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// identity is the device that an Instance represents.
type identity struct {
	id string
	// node of a local device.
	node string
}

func (i identity) is(device Device) bool {
	return device.ID == i.id && (device.Shared || device.Node == i.node)
}

// identityOf returns the identity of an Instance. It returns false if the Instance does not exist
// or was created by upstream Akri: its identity is not known.
func identityOf(instance *akriv0.Instance) (identity, bool) {
	if instance == nil || instance.Annotations[akriv0.DeviceIDAnnotation] == "" {
		return identity{}, false
	}
	known := identity{id: instance.Annotations[akriv0.DeviceIDAnnotation]}
	if len(instance.Spec.Nodes) > 0 {
		known.node = slices.Min(instance.Spec.Nodes)
	}
	return known, true
}

// represents reports whether the Instance is known to be that of the device.
func represents(instance *akriv0.Instance, device Device) bool {
	known, ok := identityOf(instance)
	return ok && known.is(device)
}

// split returns the devices that the Instance represents and the others. An Instance without an
// identity gets that of the first device, by node.
func split(current *akriv0.Instance, devices []Device) (accepted, others []Device) {
	ordered := slices.SortedFunc(slices.Values(devices), func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	own, ok := identityOf(current)
	for _, device := range ordered {
		if !ok && mayAdopt(current, device) {
			own, ok = identity{device.ID, device.Node}, true
		}
		if ok && own.is(device) {
			accepted = append(accepted, device)
		} else {
			others = append(others, device)
		}
	}
	return accepted, others
}

// mayAdopt reports whether an Instance without an identity can be that of the device.
func mayAdopt(current *akriv0.Instance, device Device) bool {
	return current == nil || device.Shared || len(current.Spec.Nodes) == 0 || slices.Min(current.Spec.Nodes) == device.Node
}
