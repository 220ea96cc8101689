// Package merge computes the desired state of an Instance from its current state, the reports of
// the nodes, its Configuration and the unavailable nodes. Replicas that hold different reports
// compute the same Instance in any order of writes, because each adds and removes only nodes whose
// reports it holds.
package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/slots"
)

// Input of Desired.
type Input struct {
	// Name of the Instance.
	Name string
	// Configuration of the device, or nil if it was deleted.
	Configuration *akriv0.Configuration
	// Current is the Instance, or nil if it does not exist. Desired does not change it.
	Current *akriv0.Instance
	// Seen are the devices with the short name of the Instance in the reports of this replica.
	Seen []Device
	// Absent returns whether the node has a complete report, held by this replica, without such a
	// device.
	Absent func(node string) bool
	// Unavailable are the nodes that do not exist, that have been not ready for too long, or that
	// the Configuration does not allow.
	Unavailable map[string]bool
	// NotReady are the nodes that are not ready, but not for too long yet. They stay, but are not
	// added: otherwise a replica that restarts would add a node that has been removed.
	NotReady map[string]bool

	// eligible reports whether a device may have the name. nil: each device may.
	eligible func(Device) bool
}

// Outcome is the result of Desired.
type Outcome struct {
	// Instance is the desired Instance, or nil if it should not exist.
	Instance *akriv0.Instance
	// Accepted are the devices that the Instance represents.
	Accepted []Device
	// Others are eligible devices that the Instance does not represent.
	Others   []Device
	Refusals []Refusal
}

// Desired computes the desired Instance.
func Desired(in Input) Outcome {
	current := in.Current
	switch {
	case current != nil && in.Configuration != nil && current.Spec.ConfigurationName != in.Configuration.Name:
		return Outcome{Instance: current, Refusals: configurationCollision(in)}
	case current != nil && current.DeletionTimestamp != nil:
		return Outcome{Instance: withoutAgentFinalizers(current)}
	case in.Configuration == nil || in.Configuration.DeletionTimestamp != nil:
		return Outcome{}
	}
	accepted, others := split(current, slices.DeleteFunc(in.candidates(), func(d Device) bool {
		listed := func() bool { return current != nil && slices.Contains(current.Spec.Nodes, d.Node) }
		return in.Unavailable[d.Node] || in.NotReady[d.Node] && !listed()
	}))
	outcome := Outcome{Accepted: accepted, Others: others}
	if nodes := nodesOf(current, accepted, in); len(nodes) > 0 {
		outcome.Instance = build(in, accepted, nodes)
	}
	return outcome
}

// candidates returns the devices that may have the name, in a new slice.
func (in Input) candidates() []Device {
	return slices.DeleteFunc(slices.Clone(in.Seen), func(d Device) bool { return in.eligible != nil && !in.eligible(d) })
}

// configurationCollision refuses all devices because the Instance belongs to another Configuration.
// Two names of Configurations can give one name of an Instance because `.` is replaced by `-`.
func configurationCollision(in Input) []Refusal {
	var refusals []Refusal
	for _, device := range in.candidates() {
		refusals = append(refusals, collision(device, "Instance %q belongs to Configuration %q; rename one of the Configurations",
			in.Name, in.Current.Spec.ConfigurationName))
	}
	return refusals
}

func withoutAgentFinalizers(current *akriv0.Instance) *akriv0.Instance {
	desired := current.DeepCopy()
	desired.Finalizers = akriv0.WithoutAgentFinalizers(current.Finalizers)
	return desired
}

// nodesOf returns the nodes that see the device: the current nodes plus the reporting nodes, minus
// the nodes that stopped reporting it and the unavailable ones.
func nodesOf(current *akriv0.Instance, accepted []Device, in Input) []string {
	nodes := sets.New[string]()
	if current != nil && !ofDeletedConfiguration(current, in.Configuration) {
		nodes.Insert(current.Spec.Nodes...)
	}
	maps.DeleteFunc(nodes, func(node string, _ sets.Empty) bool { return in.absent(node) })
	// A complete report with another device of the same short name means that the node does not see
	// this device.
	for _, device := range in.Seen {
		if device.Complete {
			nodes.Delete(device.Node)
		}
	}
	for _, device := range accepted {
		nodes.Insert(device.Node)
	}
	maps.DeleteFunc(nodes, func(node string, _ sets.Empty) bool { return in.Unavailable[node] })
	return sets.List(nodes)
}

// ofDeletedConfiguration reports whether the Instance was created for a deleted Configuration with
// the same name. Its nodes may not see the device through the new Configuration.
func ofDeletedConfiguration(current *akriv0.Instance, configuration *akriv0.Configuration) bool {
	controller := metav1.GetControllerOf(current)
	return controller != nil && controller.UID != configuration.UID && current.Annotations[akriv0.DeviceIDAnnotation] != ""
}

func (in Input) absent(node string) bool { return in.Absent != nil && in.Absent(node) }

// hasLeft returns a function that reports whether a node is known not to see the device. Slots of
// other nodes stay reserved, even if the nodes are not listed: a Pod may be using them.
func (in Input) hasLeft(nodes []string) func(node string) bool {
	return func(node string) bool {
		if slices.Contains(nodes, node) {
			return false
		}
		collides := func(d Device) bool { return d.Node == node && d.Complete }
		return in.Unavailable[node] || in.absent(node) || slices.ContainsFunc(in.Seen, collides)
	}
}

func build(in Input, accepted []Device, nodes []string) *akriv0.Instance {
	desired := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: in.Name, Namespace: in.Configuration.Namespace}}
	if in.Current != nil {
		desired = withoutAgentFinalizers(in.Current)
	}
	controller := metav1.NewControllerRef(in.Configuration, akriv0.GroupVersion.WithKind("Configuration"))
	desired.OwnerReferences = []metav1.OwnerReference{*controller}
	desired.Spec.ConfigurationName = in.Configuration.Name
	desired.SetConfigurationLabel()
	desired.Spec.CDIName = akriv0.CDIName(in.Configuration.Name, akriv0.InstanceDigest(in.Name))
	desired.Spec.Capacity = in.Configuration.Spec.CapacityOrDefault()
	desired.Spec.Nodes = nodes
	setIdentity(desired, accepted)
	setProperties(desired, accepted, in.Current == nil)
	slots.Fit(desired, in.hasLeft(nodes))
	return desired
}

// setIdentity records the id of the device.
func setIdentity(desired *akriv0.Instance, accepted []Device) {
	if len(accepted) > 0 && desired.Annotations[akriv0.DeviceIDAnnotation] == "" {
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, akriv0.DeviceIDAnnotation, accepted[0].ID)
	}
}

// setProperties keeps the properties of the Instance while one of its nodes may report them, and
// otherwise sets those that most of the accepted devices have. The nodes that report others are
// recorded in the Instance, because each replica holds the reports of some nodes only. A node
// without a report stays as it was recorded: it may still report the properties of the Instance.
func setProperties(desired *akriv0.Instance, accepted []Device, isNew bool) {
	differing := sets.New(DifferingNodes(desired)...).Intersection(sets.New(desired.Spec.Nodes...))
	record := func(established value) {
		for _, device := range accepted {
			if differing.Insert(device.Node); device.value() == established {
				differing.Delete(device.Node)
			}
		}
	}
	if isNew {
		differing.Insert(desired.Spec.Nodes...)
	} else {
		record(valueOf(desired))
	}

	if chosen, ok := mostFrequent(accepted); ok && differing.Len() == len(desired.Spec.Nodes) {
		desired.Spec.Shared, desired.Spec.BrokerProperties = chosen.Shared, chosen.Properties.Map()
		// What other replicas have recorded is about the previous properties.
		differing.Clear()
		record(chosen.value())
	}

	if differing.Len() == 0 {
		delete(desired.Annotations, akriv0.DifferingNodesAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&desired.ObjectMeta, akriv0.DifferingNodesAnnotation, strings.Join(sets.List(differing), ","))
}

// DifferingNodes returns the nodes that report other properties than those of the Instance.
func DifferingNodes(instance *akriv0.Instance) []string {
	return strings.FieldsFunc(instance.Annotations[akriv0.DifferingNodesAnnotation], func(r rune) bool { return r == ',' })
}

// value is what several nodes report about one device.
type value struct {
	shared     bool
	properties Properties
}

func (d Device) value() value {
	if d.Properties.size() <= len("null") {
		return value{shared: d.Shared} // the API server stores no empty map
	}
	return value{d.Shared, d.Properties}
}

func valueOf(instance *akriv0.Instance) value {
	return Device{Shared: instance.Spec.Shared, Properties: NewProperties(instance.Spec.BrokerProperties)}.value()
}

// mostFrequent returns the device whose value most nodes report, and of several the first by node.
// The devices are ordered by node.
func mostFrequent(devices []Device) (chosen Device, ok bool) {
	nodes, most := map[value]int{}, 0
	for _, device := range devices {
		nodes[device.value()]++
		most = max(most, nodes[device.value()])
	}
	for _, device := range devices {
		if nodes[device.value()] == most {
			return device, true
		}
	}
	return Device{}, false
}

// GroupInput is the input for all devices of a Configuration with one short name. Almost always
// that is one device. A device keeps the name that it has. A device without a name gets the short
// name if no device has it, and otherwise a name with a longer digest.
type GroupInput struct {
	// Input of each Instance, with the short name. Current is not set.
	Input
	// Instances are the known Instances with the short name or with a longer one.
	Instances []*akriv0.Instance
	// Short is the Instance with the short name after it was written. It is written first, because
	// the longer names depend on it.
	Short *akriv0.Instance
}

// Desired returns the desired Instance with the name: the short name or one of LongNames.
func (g GroupInput) Desired(name string, current *akriv0.Instance) Outcome {
	in := g.Input
	in.Name, in.Current = name, current
	if name == g.Name {
		own := identityOf(current)
		in.eligible = func(device Device) bool { return own.is(device) || !g.hasLongName(device) }
		return Desired(in)
	}
	// Two replicas can give both names to one device. The longer one then loses its nodes.
	short := identityOf(g.Short)
	in.eligible = func(device Device) bool { return g.longName(device) == name && !short.is(device) }
	outcome := Desired(in)
	for _, device := range outcome.Others {
		outcome.Refusals = append(outcome.Refusals, sameDigest(device, name))
	}
	return outcome
}

// LongNames returns the longer names of the known Instances and of the devices that the Instance
// with the short name does not represent. It refuses devices whose longer name is too long.
func (g GroupInput) LongNames(others []Device) (names []string, refusals []Refusal) {
	distinct := sets.New[string]()
	for _, instance := range g.Instances {
		distinct.Insert(instance.Name)
	}
	distinct.Delete(g.Name)
	for _, device := range others {
		name := g.longName(device)
		if len(name) > akriv0.MaxResourceName {
			refusals = append(refusals, nameTooLong(device, g.Name, name))
			continue
		}
		distinct.Insert(name)
	}
	return sets.List(distinct), refusals
}

func (g GroupInput) hasLongName(device Device) bool {
	name := g.longName(device)
	return slices.ContainsFunc(g.Instances, func(i *akriv0.Instance) bool { return i.Name == name && identityOf(i).is(device) })
}

func (g GroupInput) longName(d Device) string {
	return akriv0.InstanceName(g.Configuration.Name, akriv0.LongDigest(d.ID, d.Node, d.Shared))
}

func nameTooLong(device Device, short, long string) Refusal {
	const digits = len("-8120fex012345")
	return collision(device, "device id %q: another device has the name %s, and %s is longer than %d characters; "+
		"use a Configuration whose name has at most %d characters",
		device.ID, short, long, akriv0.MaxResourceName, akriv0.MaxResourceName-digits)
}

func sameDigest(device Device, name string) Refusal {
	return collision(device, "device id %q: another device has the same digest and the name %s; "+
		"discover one of the devices with another Configuration", device.ID, name)
}

func collision(device Device, format string, args ...any) Refusal {
	return Refusal{device, akriv0.ReasonDigestCollision, fmt.Sprintf(format, args...)}
}
