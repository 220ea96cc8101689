package instancetest

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// newSlot returns a slot with a value of deviceUsage.
func newSlot(index uint32, value string) *instancev1.Slot {
	holder, err := akriv0.ParseSlotHolder(value)
	switch {
	case err != nil:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Malformed{Malformed: value}}
	case holder.Free():
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Free{Free: &instancev1.Free{}}}
	case holder.Claim != "":
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Claim{Claim: &instancev1.ClaimHolder{Node: holder.Node, Uid: holder.Claim}}}
	case holder.Configuration:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: holder.Node, VirtualId: &holder.VirtualID}}}
	default:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: holder.Node}}}
	}
}

// valueOf returns the value of a slot in deviceUsage.
func valueOf(slot *instancev1.Slot) string {
	switch state := slot.GetState().(type) {
	case *instancev1.Slot_Malformed:
		return state.Malformed
	case *instancev1.Slot_Claim:
		return akriv0.SlotHolder{Node: state.Claim.GetNode(), Claim: state.Claim.GetUid()}.String()
	case *instancev1.Slot_Holder:
		holder := state.Holder
		return akriv0.SlotHolder{Node: holder.GetNode(), VirtualID: holder.GetVirtualId(), Configuration: holder.VirtualId != nil}.String()
	default:
		return ""
	}
}

// holderOf returns the value that a claim of a node gives a slot.
func holderOf(claim *instancev1.SlotClaim, node string) string {
	return akriv0.SlotHolder{
		Node: node, VirtualID: claim.GetVirtualId(), Configuration: claim.VirtualId != nil, Claim: claim.GetClaimUid(),
	}.String()
}

func reserve(instance *instancev1.Instance, claim *instancev1.SlotClaim, node string) error {
	if claim.GetIndex() >= instance.GetCapacity() {
		return status.Errorf(codes.OutOfRange, "Instance %q has %d slots", instance.GetName(), instance.GetCapacity())
	}
	holder := holderOf(claim, node)
	for i, slot := range instance.GetSlots() {
		if slot.GetIndex() != claim.GetIndex() {
			continue
		}
		if value := valueOf(slot); value != "" && value != holder {
			return status.Errorf(codes.FailedPrecondition, "slot %s-%d is held by %q", instance.GetName(), claim.GetIndex(), value)
		}
		instance.Slots[i] = newSlot(slot.GetIndex(), holder)
	}
	return nil
}

// free is called with mu held.
func (w *Writer) free(claim *instancev1.SlotClaim, node string) {
	instance := proto.CloneOf(w.instances[claim.GetInstance()])
	for i, slot := range instance.GetSlots() {
		if slot.GetIndex() == claim.GetIndex() && valueOf(slot) == holderOf(claim, node) {
			instance.Slots[i] = newSlot(slot.GetIndex(), "")
			w.store(instance)
		}
	}
}
