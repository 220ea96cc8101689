package node

import (
	"cmp"
	"context"
	"hash/fnv"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// SlotClaim identifies a slot of an Instance and the extended resource through which this node uses
// it.
type SlotClaim struct {
	Namespace, Configuration, Instance string

	Index uint32
	// VirtualID is set if the resource is akri.sh/<configuration>. It is empty if the resource is
	// akri.sh/<instance>.
	VirtualID string
	// ClaimUID is set if the slot is for a ResourceClaim. Resource and DeviceID then do not apply.
	ClaimUID string
}

// NewSlotClaim returns the claim of one slot of the Instance.
func NewSlotClaim(instance *instancev1.Instance, index uint32, virtualID string) SlotClaim {
	return SlotClaim{
		Namespace: instance.GetNamespace(), Configuration: instance.GetConfiguration(), Instance: instance.GetName(),
		Index: index, VirtualID: virtualID,
	}
}

// Resource returns the name of the extended resource.
func (c SlotClaim) Resource() string {
	if c.VirtualID != "" {
		return akriv0.ResourceName(c.Configuration)
	}
	return akriv0.ResourceName(c.Instance)
}

// DeviceID returns the id of the device in the kubelet.
func (c SlotClaim) DeviceID() string {
	if c.VirtualID != "" {
		return c.VirtualID
	}
	return c.Slot()
}

// Slot returns the name of the slot in deviceUsage.
func (c SlotClaim) Slot() string { return akriv0.SlotName(c.Instance, int(c.Index)) }

// Reserve calls ReserveSlots for this node and copies the Instances of the response into the store.
func (s *Store) Reserve(ctx context.Context, client instancev1.InstanceServiceClient, claims []SlotClaim) error {
	request := &instancev1.ReserveSlotsRequest{Node: s.node, Claims: toProto(claims)}
	response, err := client.ReserveSlots(ctx, request, grpc.WaitForReady(true))
	if err == nil {
		s.Refresh(response.GetInstances())
	}
	return err
}

// Release calls ReleaseSlots for this node and copies the Instances of the response into the store.
func (s *Store) Release(ctx context.Context, client instancev1.InstanceServiceClient, claims []SlotClaim) error {
	response, err := client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: s.node, Claims: toProto(claims)})
	if err == nil {
		s.Refresh(response.GetInstances())
	}
	return err
}

func toProto(claims []SlotClaim) []*instancev1.SlotClaim {
	result := make([]*instancev1.SlotClaim, 0, len(claims))
	for _, c := range claims {
		claim := &instancev1.SlotClaim{Namespace: c.Namespace, Instance: c.Instance, Index: c.Index}
		if c.VirtualID != "" {
			claim.VirtualId = &c.VirtualID
		}
		if c.ClaimUID != "" {
			claim.ClaimUid = &c.ClaimUID
		}
		result = append(result, claim)
	}
	return result
}

// Compare orders claims by namespace, Instance, index, virtual id and uid of the ResourceClaim.
func (c SlotClaim) Compare(other SlotClaim) int {
	return cmp.Or(cmp.Compare(c.Namespace, other.Namespace), cmp.Compare(c.Instance, other.Instance), cmp.Compare(c.Index, other.Index),
		cmp.Compare(c.VirtualID, other.VirtualID), cmp.Compare(c.ClaimUID, other.ClaimUID))
}

// SlotState is the state of a slot with respect to a claim.
type SlotState int

const (
	// SlotAbsent means that the slot does not exist, or its Instance does not list this node.
	SlotAbsent SlotState = iota
	// SlotFree means that the slot can be reserved.
	SlotFree
	// SlotHeld means that this node holds the slot through the resource of the claim, or for its
	// ResourceClaim.
	SlotHeld
	// SlotTaken means that another node or another resource holds the slot, or that its record is
	// malformed.
	SlotTaken
)

// SlotState returns the state of the slot of a claim.
func (s *Snapshot) SlotState(claim SlotClaim) SlotState {
	instance := s.byName[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Instance}]
	for _, slot := range instance.GetSlots() {
		switch {
		case slot.GetIndex() != claim.Index:
			continue
		case slot.GetFree() != nil:
			return SlotFree
		case s.holdsFor(slot, claim):
			return SlotHeld
		default:
			return SlotTaken
		}
	}
	return SlotAbsent
}

func (s *Snapshot) holdsFor(slot *instancev1.Slot, claim SlotClaim) bool {
	if claim.ClaimUID != "" {
		return slot.GetClaim().GetNode() == s.Node && slot.GetClaim().GetUid() == claim.ClaimUID
	}
	return s.Holds(slot) && slot.GetHolder().GetVirtualId() == claim.VirtualID
}

// ClaimSlots returns the slots that this node holds for ResourceClaims.
func (s *Snapshot) ClaimSlots() []SlotClaim {
	var held []SlotClaim
	for _, instance := range s.instances {
		for _, slot := range instance.GetSlots() {
			if holder := slot.GetClaim(); holder != nil && holder.GetNode() == s.Node {
				claim := NewSlotClaim(instance, slot.GetIndex(), "")
				claim.ClaimUID = holder.GetUid()
				held = append(held, claim)
			}
		}
	}
	return held
}

// HeldSlots returns the slots that this node holds through device plugins, even if it does not see
// their devices.
func (s *Snapshot) HeldSlots() []SlotClaim {
	var held []SlotClaim
	for _, instance := range s.instances {
		for _, slot := range instance.GetSlots() {
			if s.Holds(slot) {
				held = append(held, NewSlotClaim(instance, slot.GetIndex(), slot.GetHolder().GetVirtualId()))
			}
		}
	}
	return held
}

// Holds reports whether this node holds the slot, through either resource.
func (s *Snapshot) Holds(slot *instancev1.Slot) bool {
	return slot.GetHolder() != nil && slot.GetHolder().GetNode() == s.Node
}

// Rank orders the slots of an Instance by preference, from 0. Each node starts at another slot, so
// that two nodes that reserve at the same time rarely choose the same one.
func (s *Snapshot) Rank(instance *instancev1.Instance, index uint32) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(s.Node))
	return (index + hash.Sum32()%1024) % max(1, instance.GetCapacity())
}
