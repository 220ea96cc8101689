package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// checkSlots returns an error if more containers use the Instance than its Configuration ever
// allows, or more on a node than the node holds slots: a slot was given to two containers, or was
// taken from a running one. The containers run while the Instance is in this version. Nodes that
// the Instance does not list are not checked, because they lost their slots with the device.
func checkSlots(instance *akriv0.Instance, running map[string]user, capacity int32) error {
	holding, err := held(instance)
	if err != nil {
		return err
	}
	total := 0
	using := count(running, instance.Name)
	for _, node := range slices.Sorted(maps.Keys(using)) {
		total += using[node]
		if using[node] > holding[node] && slices.Contains(instance.Spec.Nodes, node) {
			return fmt.Errorf("%d containers on %s use %s, and the node holds %d slots", using[node], node, instance.Name, holding[node])
		}
	}
	if total > int(capacity) {
		return fmt.Errorf("%d containers use %s, whose capacity is at most %d", total, instance.Name, capacity)
	}
	return nil
}

// checkChange returns an error if an Instance changes hands, or if a slot is reserved that is not
// below the capacity. before is nil for a new Instance.
func checkChange(before, after *akriv0.Instance) error {
	if before == nil {
		return nil
	}
	if a, b := before.Annotations[akriv0.DeviceIDAnnotation], after.Annotations[akriv0.DeviceIDAnnotation]; before.UID == after.UID && a != b {
		return fmt.Errorf("the Instance %s of device %q became that of %q", after.Name, a, b)
	}
	for slot, value := range after.Spec.DeviceUsage {
		index, err := akriv0.SlotIndex(after.Name, slot)
		if err != nil {
			return err
		}
		reserved := value != "" && before.Spec.DeviceUsage[slot] == ""
		if reserved && index >= int(max(before.Spec.Capacity, after.Spec.Capacity)) {
			return fmt.Errorf("slot %s was reserved, and the capacity is %d", slot, after.Spec.Capacity)
		}
	}
	return nil
}

// released reports whether a node holds fewer slots than before.
func released(before, after *akriv0.Instance) bool {
	if before == nil {
		return false
	}
	for slot, value := range before.Spec.DeviceUsage {
		if value != "" && after.Spec.DeviceUsage[slot] != value {
			return true
		}
	}
	return false
}

// checkInstance returns an error if an Instance is not as expected.
func checkInstance(instance *akriv0.Instance, want expected) error {
	spec := instance.Spec
	nodes := slices.Sorted(slices.Values(spec.Nodes))
	switch {
	case instance.Annotations[akriv0.DeviceIDAnnotation] != want.device:
		return fmt.Errorf("%s is of device %q, expected %q", instance.Name, instance.Annotations[akriv0.DeviceIDAnnotation], want.device)
	case !slices.Equal(nodes, want.nodes):
		return fmt.Errorf("%s has nodes %v, expected %v", instance.Name, nodes, want.nodes)
	case spec.Capacity != want.capacity:
		return fmt.Errorf("%s has capacity %d, expected %d", instance.Name, spec.Capacity, want.capacity)
	}
	for key, value := range want.properties {
		if spec.BrokerProperties[key] != value {
			return fmt.Errorf("%s has %s=%q, expected %q", instance.Name, key, spec.BrokerProperties[key], value)
		}
	}
	return nil
}

// checkBrokers returns an error if an Instance has more broker Pods that have not ended than its
// capacity, or two on one node.
func checkBrokers(pods []*corev1.Pod, instance string, capacity int32) error {
	byNode, total := map[string]int{}, 0
	for _, pod := range pods {
		if pod.Labels[mesh.InstanceLabel] != instance || ended(pod) {
			continue
		}
		total++
		if node := pod.Labels["akri.sh/target-node"]; node != "" {
			if byNode[node]++; byNode[node] > 1 {
				return fmt.Errorf("%s has two brokers on %s", instance, node)
			}
		}
	}
	if total > int(capacity) {
		return fmt.Errorf("%s has %d brokers, and the capacity is at most %d", instance, total, capacity)
	}
	return nil
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// startError is the reason of a container whose process did not start, for example because the
// kubelet was killed meanwhile. It counts as a restart.
const startError = "StartError"

// checkRestarts returns an error if a container of a service restarted more often than allowed.
func checkRestarts(pod *corev1.Pod, allowed func(uid, container string) int) error {
	for _, status := range pod.Status.ContainerStatuses {
		last := status.LastTerminationState.Terminated
		if last != nil && last.Reason == startError {
			continue
		}
		if limit := allowed(string(pod.UID), status.Name); int(status.RestartCount) > limit {
			reason := "unknown"
			if last != nil {
				reason = fmt.Sprintf("%s, exit code %d: %s", last.Reason, last.ExitCode, last.Message)
			}
			return fmt.Errorf("%s/%s restarted %d times, expected at most %d (last: %s)", pod.Name, status.Name, status.RestartCount, limit, reason)
		}
	}
	return nil
}

// allocatable returns the number of devices that a node must offer, by resource.
func allocatable(node string, instances []*akriv0.Instance) (map[string]int64, error) {
	want := map[string]int64{}
	for _, instance := range instances {
		if !slices.Contains(instance.Spec.Nodes, node) {
			continue
		}
		all, err := holders(instance)
		if err != nil {
			return nil, err
		}
		// The slots that the node holds through the Instance and through the Configuration, and the
		// free ones.
		var own, claimed, free int64
		for _, holder := range all {
			switch {
			case holder.Free():
				free++
			case holder.Node == node && holder.Configuration:
				claimed++
			case holder.Node == node:
				own++
			}
		}
		want[akriv0.ResourceName(instance.Name)] = own + free
		// One virtual device for each Instance with a free slot.
		want[akriv0.ResourceName(instance.Spec.ConfigurationName)] += claimed + min(free, 1)
	}
	return want, nil
}

// checkAllocatable returns an error if the resources of Akri on a node are not as expected. A
// resource that no longer exists has the quantity 0.
func checkAllocatable(node *corev1.Node, instances []*akriv0.Instance) error {
	want, err := allocatable(node.Name, instances)
	if err != nil {
		return err
	}
	for name, quantity := range node.Status.Allocatable {
		if strings.HasPrefix(string(name), akriv0.Group+"/") && quantity.Value() != want[string(name)] {
			return fmt.Errorf("%d %s are allocatable on %s, expected %d", quantity.Value(), name, node.Name, want[string(name)])
		}
	}
	for name, count := range want {
		if quantity := node.Status.Allocatable[corev1.ResourceName(name)]; quantity.Value() != count {
			return fmt.Errorf("%d %s are allocatable on %s, expected %d", quantity.Value(), name, node.Name, count)
		}
	}
	return nil
}
