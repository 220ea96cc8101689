package slots

import (
	"cmp"
	"maps"
	"slices"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
)

// Lost has the slots that Pods of this node use and that the node does not hold. Slots are lost
// when an Instance is deleted and created again while its slots are in use, when it does not list
// the node for a while, or when a user edits it.
type Lost struct {
	// Free slots can be taken back.
	Free []node.SlotClaim
	// Taken slots have another holder now.
	Taken []node.SlotClaim
	// Unknown has virtual devices whose slot this process has not seen.
	Unknown []VirtualDevice
}

// Lost returns the slots that Pods use, or that were allocated recently, and that this node does
// not hold.
func (t *Tracker) Lost(now time.Time, snapshot *node.Snapshot, inUse Devices) Lost {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost(now, snapshot, inUse)
}

func (t *Tracker) lost(now time.Time, snapshot *node.Snapshot, inUse Devices) Lost {
	var lost Lost
	used, unknown := t.usedSlots(snapshot, inUse)
	for claim, use := range t.slots {
		if use.recentlyAllocated(now) {
			used[claim] = true
		}
	}
	for _, claim := range slices.SortedFunc(maps.Keys(used), node.SlotClaim.Compare) {
		switch snapshot.SlotState(claim) {
		case node.SlotFree:
			lost.Free = append(lost.Free, claim)
		case node.SlotTaken:
			lost.Taken = append(lost.Taken, claim)
		case node.SlotAbsent, node.SlotHeld:
		}
	}
	lost.Unknown = slices.SortedFunc(maps.Keys(unknown), func(a, b VirtualDevice) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID))
	})
	return lost
}

// usedSlots returns the slots of the devices in use, and the virtual devices in use whose slot is
// unknown.
func (t *Tracker) usedSlots(snapshot *node.Snapshot, inUse Devices) (map[node.SlotClaim]bool, map[VirtualDevice]bool) {
	used, unknown := map[node.SlotClaim]bool{}, map[VirtualDevice]bool{}
	for name, instance := range snapshot.Instances() {
		for id := range inUse[akriv0.ResourceName(name)] {
			if index, err := akriv0.SlotIndex(name, id); err == nil {
				used[node.NewSlotClaim(instance, uint32(index), "")] = true
			}
		}
		resource := akriv0.ResourceName(instance.GetConfiguration())
		for id := range inUse[resource] {
			device := VirtualDevice{resource, id}
			if slot, ok := t.virtual[device]; ok {
				used[slot.claim] = true
			} else {
				unknown[device] = true
			}
		}
	}
	return used, unknown
}

// NeedsCheck reports whether the lists of the kubelet are needed although the node holds no slot:
// an Instance is new, or a slot that was in use in the last list is free or has another holder.
func (t *Tracker) NeedsCheck(now time.Time, snapshot *node.Snapshot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.needsCheck(now, snapshot) || len(t.lost(now, snapshot, t.lastInUse).Taken) > 0
}

// needsCheck reports whether a list can show slots to take back, so that it is needed soon.
func (t *Tracker) needsCheck(now time.Time, snapshot *node.Snapshot) bool {
	names := snapshot.InstanceNames()
	t.compared = t.compared.Intersection(names)
	return len(t.compared) < len(names) || len(t.lost(now, snapshot, t.lastInUse).Free) > 0
}

// SetCompared records that the last list of the kubelet was compared with the snapshot.
func (t *Tracker) SetCompared(snapshot *node.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared = snapshot.InstanceNames()
}
