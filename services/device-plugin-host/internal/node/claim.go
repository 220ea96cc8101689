package node

import (
	"cmp"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"

	allocationv1 "akri.sh/proto/akri/allocation/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Claim is a slot that this node holds or wants.
type Claim struct {
	Namespace, Configuration, Instance string

	Index uint32
	// VirtualID is set when the slot is held through akri.sh/<configuration>.
	VirtualID string
}

// Resource is the extended resource that the claim was made through.
func (c Claim) Resource() string {
	if c.VirtualID != "" {
		return akriv0.ResourceName(c.Configuration)
	}
	return akriv0.ResourceName(c.Instance)
}

// DeviceID is the id by which the kubelet knows the slot.
func (c Claim) DeviceID() string {
	if c.VirtualID != "" {
		return c.VirtualID
	}
	return c.Slot()
}

// Slot is the slot's name in deviceUsage.
func (c Claim) Slot() string { return akriv0.SlotName(c.Instance, int(c.Index)) }

// Proto is the claim as instance-writer reads it.
func (c Claim) Proto() *instancev1.SlotClaim {
	claim := &instancev1.SlotClaim{Namespace: c.Namespace, Instance: c.Instance, Index: c.Index}
	if c.VirtualID != "" {
		claim.VirtualId = &c.VirtualID
	}
	return claim
}

// ClaimOf is the claim of one slot of the Instance.
func ClaimOf(instance *instancev1.Instance, index uint32, virtualID string) Claim {
	return Claim{
		Namespace: instance.GetNamespace(), Configuration: instance.GetConfiguration(), Instance: instance.GetName(),
		Index: index, VirtualID: virtualID,
	}
}

// Compare orders claims.
func (c Claim) Compare(other Claim) int {
	return cmp.Or(cmp.Compare(c.Namespace, other.Namespace), cmp.Compare(c.Instance, other.Instance),
		cmp.Compare(c.Index, other.Index), cmp.Compare(c.VirtualID, other.VirtualID))
}

// Standing is how a claim stands.
type Standing int

// The ways in which a claim can stand.
const (
	// Absent: there is no such slot here, so nobody can take it.
	Absent Standing = iota
	Free
	// Own: held by this node, through the resource of the claim.
	Own
	// Taken: another node holds it, or this one through another resource, or its value is malformed.
	Taken
)

// Standing tells how the claim stands.
func (v *View) Standing(claim Claim) Standing {
	for _, slot := range v.byKey[Key{claim.Namespace, claim.Instance}].GetSlots() {
		holder := slot.GetHolder()
		switch {
		case slot.GetIndex() != claim.Index:
			continue
		case slot.GetFree() != nil:
			return Free
		case holder != nil && holder.GetNode() == v.Node && holder.GetVirtualId() == claim.VirtualID:
			return Own
		default:
			return Taken
		}
	}
	return Absent
}

// Held are the slots that this node holds, whether or not it sees their devices.
func (v *View) Held() []Claim {
	var held []Claim
	for _, instance := range v.instances {
		for _, slot := range instance.GetSlots() {
			if holder := slot.GetHolder(); holder != nil && holder.GetNode() == v.Node {
				held = append(held, ClaimOf(instance, slot.GetIndex(), holder.GetVirtualId()))
			}
		}
	}
	return held
}

// State is what the allocator needs to know of a Configuration. An Instance whose device is not seen at the moment
// keeps its claims, so that their ids are not given away, and offers nothing. Slots that were asked for, and of which
// nobody knows yet whether they were taken, count as claimed where the view has them free.
func (v *View) State(configuration Key, asked ...Claim) *allocationv1.State {
	state := &allocationv1.State{Node: v.Node}
	for _, instance := range v.instances {
		if (Key{instance.GetNamespace(), instance.GetConfiguration()}) == configuration {
			state.Instances = append(state.Instances, v.stateOf(instance))
		}
	}
	for _, claim := range asked {
		if (Key{claim.Namespace, claim.Configuration}) == configuration {
			presume(state, claim)
		}
	}
	return state
}

// presume makes a free slot one that the claim has, unless its virtual id has another.
func presume(state *allocationv1.State, claim Claim) {
	var of *allocationv1.Instance
	for _, instance := range state.GetInstances() {
		for _, slot := range instance.GetClaimedSlots() {
			if slot.GetVirtualId() == claim.VirtualID {
				return
			}
		}
		if instance.GetName() == claim.Instance {
			of = instance
		}
	}
	if i := slices.Index(of.GetFreeSlots(), claim.Index); i >= 0 {
		of.FreeSlots = slices.Delete(of.FreeSlots, i, i+1)
		of.ClaimedSlots = append(of.ClaimedSlots, &allocationv1.ClaimedSlot{Index: claim.Index, VirtualId: claim.VirtualID})
	}
}

func (v *View) stateOf(instance *instancev1.Instance) *allocationv1.Instance {
	state := &allocationv1.Instance{Name: instance.GetName(), Capacity: instance.GetCapacity()}
	seen := v.Devices[instance.GetName()].Instance == instance
	for _, slot := range instance.GetSlots() {
		switch holder := slot.GetHolder(); {
		case slot.GetFree() != nil:
			if seen && slot.GetIndex() < instance.GetCapacity() {
				state.FreeSlots = append(state.FreeSlots, slot.GetIndex())
			}
		case holder != nil && holder.GetNode() == v.Node && holder.VirtualId != nil:
			state.ClaimedSlots = append(state.ClaimedSlots, &allocationv1.ClaimedSlot{Index: slot.GetIndex(), VirtualId: holder.GetVirtualId()})
		}
	}
	return state
}
