package merge

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

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
