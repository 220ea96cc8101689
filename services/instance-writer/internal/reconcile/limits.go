package reconcile

import (
	"fmt"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/merge"
)

// The devices that a node adds or changes are written at this rate, after a burst for a node that
// connects for the first time. Without it a node whose devices come and go in each report would
// cause as many writes as the API server can take.
const (
	deviceRate, deviceBurst = 20, 2000
	maxDeviceNodes          = 8192
)

// withinLimits removes the devices that exceed the limits of their node, and returns them. An
// Instance that lists the node stays, with its properties.
func (r *Reconciler) withinLimits(group *merge.GroupInput) (refusals []merge.Refusal) {
	accepted := group.Seen[:0:0]
	for _, device := range group.Seen {
		current := instanceFor(group.Instances, device)
		message := r.exceeded(device, current)
		if message == "" {
			accepted = append(accepted, device)
			continue
		}
		refusals = append(refusals, merge.Refusal{Device: device, Reason: akriv0.ReasonTooManyDevices, Message: message})
		if current != nil {
			device.Properties = merge.NewProperties(current.Spec.BrokerProperties)
			accepted = append(accepted, device)
		}
	}
	group.Seen = accepted
	return refusals
}

// exceeded returns a message about the limit of its node that a device exceeds, or nothing. current
// is the Instance that lists the node for it, or nil.
func (r *Reconciler) exceeded(device merge.Device, current *akriv0.Instance) string {
	switch {
	case current != nil && merge.NewProperties(current.Spec.BrokerProperties) == device.Properties:
		return ""
	case !r.fits(device, current):
		// The limits of reports do not suffice: Instances stay when the node sends an incomplete
		// report without their devices, or has no stream.
		return fmt.Sprintf("the Instances of node %s have the %d devices, or the %d MiB of ids and properties, that a node can have; "+
			"those of devices that do not exist are removed when all handlers of the node have answered",
			device.Node, cluster.MaxNodeDevices, cluster.MaxNodeBytes>>20)
	case (current == nil || len(current.Spec.Nodes) == 1) && !r.newDevices.Of(device.Node).Allow():
		// Properties that differ from those that another node reports are usually not written.
		return fmt.Sprintf("node %s has added or changed %d devices and goes on at more than %d a second; the others are tried again every %s",
			device.Node, deviceBurst, deviceRate, refusedRetry)
	}
	return ""
}

// fits reports whether the Instances of the node can grow by its device.
func (r *Reconciler) fits(device merge.Device, current *akriv0.Instance) bool {
	if current == nil {
		return r.Cluster.Fits(device.Node, 1, device.Size())
	}
	growth := device.Size() - cluster.InstanceBytes(current)
	return growth <= 0 || r.Cluster.Fits(device.Node, 0, growth)
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
