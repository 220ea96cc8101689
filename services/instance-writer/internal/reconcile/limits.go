package reconcile

import (
	"fmt"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/merge"
)

// withinLimits removes the devices whose Instances would exceed the limits of a node, and returns
// them. The limits of reports do not suffice: Instances stay when the node sends an incomplete
// report without their devices, or has no stream. An Instance that lists the node stays, with its
// properties.
func (r *Reconciler) withinLimits(group *merge.GroupInput) (refusals []merge.Refusal) {
	accepted := group.Seen[:0:0]
	for _, device := range group.Seen {
		current := instanceFor(group.Instances, device)
		if r.fits(device, current) {
			accepted = append(accepted, device)
			continue
		}
		refusals = append(refusals, merge.Refusal{Device: device, Reason: akriv0.ReasonTooManyDevices, Message: fmt.Sprintf(
			"the Instances of node %s have the %d devices, or the %d MiB of ids and properties, that a node can have; "+
				"those of devices that do not exist are removed when all handlers of the node have answered",
			device.Node, cluster.MaxNodeDevices, cluster.MaxNodeBytes>>20)})
		if current != nil {
			device.Properties = merge.NewProperties(current.Spec.BrokerProperties)
			accepted = append(accepted, device)
		}
	}
	group.Seen = accepted
	return refusals
}

// fits reports whether the limits of a node allow its device. current is the Instance that lists
// the node for it, or nil.
func (r *Reconciler) fits(device merge.Device, current *akriv0.Instance) bool {
	if current == nil {
		return r.Cluster.Fits(device.Node, 1, device.Size())
	}
	growth := device.Size() - cluster.InstanceBytes(current)
	return growth <= 0 || merge.NewProperties(current.Spec.BrokerProperties) == device.Properties || r.Cluster.Fits(device.Node, 0, growth)
}

// instanceFor returns the Instance that lists the node of the device for it, or nil. Instances of
// upstream Akri do not have the id of their device.
func instanceFor(instances []*akriv0.Instance, device merge.Device) *akriv0.Instance {
	for _, instance := range instances {
		id := instance.Annotations[akriv0.DeviceIDAnnotation]
		if (id == device.ID || id == "") && slices.Contains(instance.Spec.Nodes, device.Node) {
			return instance
		}
	}
	return nil
}
