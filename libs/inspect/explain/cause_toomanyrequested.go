package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// TooManyRequested means that a Pod requests more than there is of a device, or of the devices of a
// Configuration on any node.
const TooManyRequested CauseID = "TooManyRequested"

func init() { register(rule{TooManyRequested, LinkScheduled, 1, tooManyRequested}) }

func tooManyRequested(t target, report func(Cause)) {
	for _, name := range requestedDevices(t.pod) {
		wanted, available, unit := demand(t.pod, name), 0, "slot"
		instances := t.instancesOfResource(name)
		for _, node := range nodesOf(instances) {
			found, what := supply(instances, name, node)
			available, unit = max(available, found), what
		}
		if wanted <= available {
			continue
		}
		report(Cause{
			Message:  fmt.Sprintf("a container requests %d of %s, and no node has more than %s", wanted, akriv0.ResourceName(name), Plural(available, unit)),
			Evidence: t.nodeReasons(),
			Remedies: []Remedy{
				remedy("Request fewer in the limits of the Pod, and create it again.", "kubectl akri devices --all-namespaces"),
			},
		})
	}
}

// demand returns the most that a container of the Pod requests of a resource.
func demand(pod *corev1.Pod, name string) int {
	most := 0
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		quantity := container.Resources.Limits[corev1.ResourceName(akriv0.ResourceName(name))]
		most = max(most, int(quantity.Value()))
	}
	return most
}

// supply returns how many a container on the node can have of a resource, which stands for the
// Instances, and of what: slots of an Instance, or devices of a Configuration, because a container
// gets each device once.
func supply(instances []*akriv0.Instance, name, node string) (count int, unit string) {
	unit = "slot"
	for _, instance := range instances {
		switch {
		case !slices.Contains(instance.Spec.Nodes, node):
		case instance.Name == name:
			count += int(instance.Spec.Capacity)
		default:
			count, unit = count+1, "device"
		}
	}
	return count, unit
}

// shortageOf returns why a node cannot give the Pod what it requests of a resource, or nothing.
func (t target) shortageOf(name, node string) string {
	resource := akriv0.ResourceName(name)
	instances := t.instancesOfResource(name)
	available, unit := supply(instances, name, node)
	wanted := demand(t.pod, name)
	switch {
	case available == 0:
		return "it does not see " + resource
	case wanted > available:
		return fmt.Sprintf("%d of %s requested, it has %s", wanted, resource, Plural(available, unit))
	}

	var seen []*akriv0.Instance
	for _, instance := range instances {
		if slices.Contains(instance.Spec.Nodes, node) {
			seen = append(seen, instance)
		}
	}
	slots := slotsOf(seen...)
	if free := freeSlots(slots); free < wanted {
		return fmt.Sprintf("%d of %s requested, %d of %d slots used", wanted, resource, len(slots)-free, len(slots))
	}
	return ""
}
