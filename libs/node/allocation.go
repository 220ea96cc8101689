package node

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	allocationv1 "akri.sh/proto/akri/allocation/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// AllocationState returns the state of a Configuration for config-plugin-allocator. An Instance
// whose device the node does not see keeps its claimed slots, so that their virtual ids are not
// reused, and has no free slots. The pending claims, whose reservation was sent without a final
// response, count as claimed if their slots are free.
func (s *Snapshot) AllocationState(configuration types.NamespacedName, pending ...SlotClaim) *allocationv1.State {
	state := &allocationv1.State{Node: s.Node}
	for _, instance := range s.instances {
		if configurationOf(instance) == configuration {
			state.Instances = append(state.Instances, s.allocationInstance(instance))
		}
	}
	for _, claim := range pending {
		if (types.NamespacedName{Namespace: claim.Namespace, Name: claim.Configuration}) == configuration {
			addPending(state, claim)
		}
	}
	return state
}

func (s *Snapshot) allocationInstance(instance *instancev1.Instance) *allocationv1.Instance {
	state := &allocationv1.Instance{Name: instance.GetName(), Capacity: instance.GetCapacity()}
	seen := s.Devices[instance.GetName()].Instance == instance
	for _, slot := range instance.GetSlots() {
		switch {
		case slot.GetFree() != nil:
			if seen && slot.GetIndex() < instance.GetCapacity() {
				state.FreeSlots = append(state.FreeSlots, slot.GetIndex())
			}
		case s.Holds(slot) && slot.GetHolder().VirtualId != nil:
			claimed := &allocationv1.ClaimedSlot{Index: slot.GetIndex(), VirtualId: slot.GetHolder().GetVirtualId()}
			state.ClaimedSlots = append(state.ClaimedSlots, claimed)
		}
	}
	return state
}

// addPending marks a free slot as claimed by the virtual id, unless that id has another slot.
func addPending(state *allocationv1.State, claim SlotClaim) {
	var instance *allocationv1.Instance
	for _, candidate := range state.GetInstances() {
		for _, slot := range candidate.GetClaimedSlots() {
			if slot.GetVirtualId() == claim.VirtualID {
				return
			}
		}
		if candidate.GetName() == claim.Instance {
			instance = candidate
		}
	}
	if i := slices.Index(instance.GetFreeSlots(), claim.Index); i >= 0 {
		instance.FreeSlots = slices.Delete(instance.FreeSlots, i, i+1)
		claimed := &allocationv1.ClaimedSlot{Index: claim.Index, VirtualId: claim.VirtualID}
		instance.ClaimedSlots = append(instance.ClaimedSlots, claimed)
	}
}
