package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Slot is one slot of a device.
type Slot struct {
	Namespace     string `json:"namespace"`
	Configuration string `json:"configuration"`
	Instance      string `json:"instance"`
	Slot          string `json:"slot"`
	// Node that holds the slot. Empty: the slot is free.
	Node string `json:"node,omitempty"`
	// Resource through which the slot is held.
	Resource string `json:"resource,omitempty"`
	// Claim is the uid of the ResourceClaim that holds the slot. Its Pod can request the resource
	// of the Instance or of the Configuration.
	Claim string `json:"claim,omitempty"`
	// Pods on the node that use the resource, as namespace/name. If the node holds several slots of
	// the resource, each of the Pods may use any of them.
	Pods []string `json:"pods,omitempty"`
	// Problem of a malformed value.
	Problem string `json:"problem,omitempty"`
}

// Slots returns the slots of the Instances with the Pods that use them.
func (s *Snapshot) Slots(instances ...*akriv0.Instance) []Slot {
	slots, users := slotsOf(instances...), usersOf(s.Pods)
	for i := range slots {
		slot := &slots[i]
		slot.Pods = users[user{slot.Node, slot.Resource}]
		if slot.Claim == "" {
			continue
		}
		if pods := usersOfClaim(s, slot.Claim, slot.Node); len(pods) > 0 {
			slot.Pods = pods
		} else {
			ofConfiguration := users[user{slot.Node, akriv0.ResourceName(slot.Configuration)}]
			slot.Pods = slices.Sorted(slices.Values(slices.Concat(slot.Pods, ofConfiguration)))
		}
	}
	return slots
}

// slotsOf returns the slots of the Instances, by index.
func slotsOf(instances ...*akriv0.Instance) []Slot {
	slots := []Slot{}
	for _, instance := range instances {
		names := map[string]bool{}
		for i := range int(instance.Spec.Capacity) {
			names[akriv0.SlotName(instance.Name, i)] = true
		}
		for name := range instance.Spec.DeviceUsage {
			names[name] = true
		}
		sorted := slices.SortedFunc(maps.Keys(names), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		for _, name := range sorted {
			slots = append(slots, slotOf(instance, name))
		}
	}
	return slots
}

func slotOf(instance *akriv0.Instance, name string) Slot {
	slot := Slot{Namespace: instance.Namespace, Configuration: instance.Spec.ConfigurationName, Instance: instance.Name, Slot: name}
	holder, err := akriv0.ParseSlotHolder(instance.Spec.DeviceUsage[name])
	switch {
	case err != nil:
		slot.Problem = err.Error()
	case holder.Configuration:
		slot.Resource = akriv0.ResourceName(instance.Spec.ConfigurationName)
	case !holder.Free():
		slot.Resource = akriv0.ResourceName(instance.Name)
	}
	slot.Node, slot.Claim = holder.Node, holder.Claim
	return slot
}

// user is a resource that a node uses.
type user struct{ node, resource string }

// usersOf returns those of the Pods that use resources, as namespace/name, by name.
func usersOf(pods []corev1.Pod) map[user][]string {
	users := map[user][]string{}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" || ended(pod) {
			continue
		}
		for name := range DeviceRequests(pod) {
			key := user{pod.Spec.NodeName, akriv0.ResourceName(name)}
			users[key] = append(users[key], pod.Namespace+"/"+pod.Name)
		}
	}
	for _, names := range users {
		slices.Sort(names)
	}
	return users
}

// usersOfClaim returns the Pods on the node for which the claim is reserved, as namespace/name.
func usersOfClaim(s *Snapshot, uid, node string) []string {
	index := slices.IndexFunc(s.ResourceClaims, func(claim resourcev1.ResourceClaim) bool { return string(claim.UID) == uid })
	if index < 0 {
		return nil
	}
	var pods []string
	for _, user := range s.ResourceClaims[index].Status.ReservedFor {
		if user.Resource != "pods" {
			continue
		}
		namespace := s.ResourceClaims[index].Namespace
		if pod := Find(s.Pods, namespace, user.Name); pod == nil || pod.Spec.NodeName == node {
			pods = append(pods, namespace+"/"+user.Name)
		}
	}
	slices.Sort(pods)
	return pods
}

// freeSlots counts the slots that can be reserved.
func freeSlots(slots []Slot) int {
	free := 0
	for _, slot := range slots {
		if slot.Node == "" && slot.Problem == "" {
			free++
		}
	}
	return free
}

const maxHolders = 6

// holders lists who holds the slots: "node-a (default/camera-broker)".
func holders(slots []Slot) string {
	var parts []string
	for _, slot := range slots {
		if slot.Node == "" {
			continue
		}
		part := slot.Node
		if len(slot.Pods) > 0 {
			part += " (" + strings.Join(slot.Pods, ", ") + ")"
		}
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if more := len(parts) - maxHolders; more > 0 {
		parts = append(parts[:maxHolders], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}
