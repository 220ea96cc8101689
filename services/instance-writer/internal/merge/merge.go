// Package merge decides what an Instance should be: a pure function of what it is, what nodes
// report, its Configuration and which nodes are out. Replicas that hold different reports come to
// the same Instance, in whatever order they write: each adds and removes only nodes whose report it
// holds.
package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/slots"
)

// Device is what one node reports of a device.
type Device struct {
	Node       string
	ID         string
	Shared     bool
	Properties map[string]string
	// Complete: the report is all that the node sees; what it lacks is not there.
	Complete bool
}

// Input is all that the decision looks at.
type Input struct {
	// Name of the Instance.
	Name string
	// Configuration that the device was found through; nil: it was deleted.
	Configuration *akriv0.Configuration
	// Current is nil when the Instance does not exist. It is not changed.
	Current *akriv0.Instance
	// Seen are the devices of this name in the reports held here.
	Seen []Device
	// Absent are the nodes whose complete report, held here, lacks the device.
	Absent []string
	// Out are the nodes that are gone, or not ready for too long.
	Out map[string]bool
}

// Refusal is a device that did not become part of the Instance.
type Refusal struct {
	Device
	Reason  string
	Message string
}

// Outcome is the decision.
type Outcome struct {
	// Instance as it should be; nil: it should not exist.
	Instance *akriv0.Instance
	Refusals []Refusal
}

// Desired decides.
func Desired(in Input) Outcome {
	current := in.Current
	switch {
	case current != nil && current.Spec.ConfigurationName != in.configurationName():
		return Outcome{current, refuseAll(in.Seen, "Instance %q belongs to Configuration %q", in.Name, current.Spec.ConfigurationName)}
	case current != nil && current.DeletionTimestamp != nil:
		return Outcome{Instance: withoutFinalizers(current)}
	case in.Configuration == nil || in.Configuration.DeletionTimestamp != nil:
		return Outcome{}
	}
	present := slices.DeleteFunc(slices.Clone(in.Seen), func(d Device) bool { return in.Out[d.Node] })
	accepted, refusals := choose(current, present)
	nodes := members(current, accepted, in)
	if len(nodes) == 0 {
		return Outcome{Refusals: refusals}
	}
	return Outcome{build(in, accepted, nodes), refusals}
}

func (in Input) configurationName() string {
	if in.Configuration != nil {
		return in.Configuration.Name
	}
	return in.Current.Spec.ConfigurationName
}

func withoutFinalizers(current *akriv0.Instance) *akriv0.Instance {
	desired := current.DeepCopy()
	desired.Finalizers = nil
	return desired
}

// choose tells the devices that are the Instance's from those that only share its digest. The
// Instance's own annotation decides; where there is none yet, the first node's device.
func choose(current *akriv0.Instance, seen []Device) (accepted []Device, refusals []Refusal) {
	ordered := slices.SortedFunc(slices.Values(seen), func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	id, owner := identity(current, ordered)
	for _, device := range ordered {
		switch {
		case device.ID != id:
			refusals = append(refusals, collision(device, "device id %q has the same digest as %q", device.ID, id))
		case !device.Shared && owner != device.Node:
			refusals = append(refusals, collision(device, "device id %q of node %q has the same digest as that of node %q", device.ID, device.Node, owner))
		default:
			accepted = append(accepted, device)
		}
	}
	return accepted, refusals
}

// identity is the device id that the Instance stands for, and the node that a local device belongs
// to.
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

func refuseAll(devices []Device, format string, a ...any) []Refusal {
	var refusals []Refusal
	for _, device := range devices {
		refusals = append(refusals, collision(device, format, a...))
	}
	return refusals
}

func collision(device Device, format string, a ...any) Refusal {
	return Refusal{device, akriv0.ReasonDigestCollision, fmt.Sprintf(format, a...)}
}

// members are the nodes that see the device: those that did, and those that do now, but for those
// that do not any more.
func members(current *akriv0.Instance, accepted []Device, in Input) []string {
	sees := map[string]bool{}
	if current != nil && !foreign(current, in.Configuration) {
		for _, node := range current.Spec.Nodes {
			sees[node] = true
		}
	}
	for _, node := range in.Absent {
		delete(sees, node)
	}
	// A node whose device of this name is another one does not see this one.
	for _, device := range in.Seen {
		if device.Complete {
			delete(sees, device.Node)
		}
	}
	for _, device := range accepted {
		sees[device.Node] = true
	}
	maps.DeleteFunc(sees, func(node string, _ bool) bool { return in.Out[node] })
	return slices.Sorted(maps.Keys(sees))
}

// foreign tells whether the Instance was made for another Configuration, of the same name, that was
// deleted: who saw the device through that one need not see it through this one.
func foreign(current *akriv0.Instance, configuration *akriv0.Configuration) bool {
	controller := metav1.GetControllerOf(current)
	return controller != nil && controller.UID != configuration.UID && current.Annotations[akriv0.DeviceIDAnnotation] != ""
}

// left tells whether a node that is not listed is known not to see the device. A slot of a node
// that is not known of stays held: a pod may be using it.
func (in Input) left(nodes []string) func(node string) bool {
	return func(node string) bool {
		if slices.Contains(nodes, node) {
			return false
		}
		other := func(d Device) bool { return d.Node == node && d.Complete }
		return in.Out[node] || slices.Contains(in.Absent, node) || slices.ContainsFunc(in.Seen, other)
	}
}

func build(in Input, accepted []Device, nodes []string) *akriv0.Instance {
	desired := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: in.Name, Namespace: in.Configuration.Namespace}}
	if in.Current != nil {
		desired = in.Current.DeepCopy()
	}
	desired.Finalizers = nil // left by Akri's agents; nothing may wait for a node
	desired.OwnerReferences = []metav1.OwnerReference{owner(in.Configuration)}
	desired.Spec.ConfigurationName = in.Configuration.Name
	desired.Spec.CDIName = akriv0.CDIName(in.Configuration.Name, akriv0.InstanceDigest(in.Name))
	desired.Spec.Capacity = in.Configuration.Spec.CapacityOrDefault()
	desired.Spec.Nodes = nodes
	describe(desired, accepted)
	slots.Fit(desired, in.left(nodes))
	return desired
}

// describe writes what the first node says of the device, when its report is held here: only one
// replica does, so that replicas do not undo each other's writes.
func describe(desired *akriv0.Instance, accepted []Device) {
	for _, device := range accepted {
		if desired.Annotations[akriv0.DeviceIDAnnotation] == "" {
			metav1.SetMetaDataAnnotation(&desired.ObjectMeta, akriv0.DeviceIDAnnotation, device.ID)
		}
		if device.Node == desired.Spec.Nodes[0] {
			desired.Spec.Shared = device.Shared
			desired.Spec.BrokerProperties = maps.Clone(device.Properties)
		}
	}
}

func owner(configuration *akriv0.Configuration) metav1.OwnerReference {
	return *metav1.NewControllerRef(configuration, akriv0.GroupVersion.WithKind("Configuration"))
}
