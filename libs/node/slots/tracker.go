package slots

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"akri.sh/libs/node"
)

// The intervals between two lists of the kubelet.
const (
	// listInterval is the longest interval.
	listInterval = time.Second
	// confirmInterval is the shortest time between two lists without a slot before the slot counts
	// as idle.
	confirmInterval = 500 * time.Millisecond
	// startInterval applies while a list is expected to contain a slot for the first time. A Pod
	// that ends before that is not known to have used the slot.
	startInterval = 250 * time.Millisecond
	// lostInterval applies while a slot may be lost.
	lostInterval = 100 * time.Millisecond
)

// useGrace is how long a slot may be held before a Pod is seen to use it. The kubelet allocates
// devices before it lists the Pod, and lists no Pods for a while after it starts.
const useGrace = 20 * time.Second

// Tracker compares the slots that this node holds with the devices that its Pods use. It takes the
// time as an argument and does not block.
//
// A slot that was in use is idle when two lists of the kubelet, at least confirmInterval apart, do
// not contain it. A slot that was not in use since it was reserved, or since the kubelet restarted,
// is unconfirmed after useGrace, or in the next list after a refused allocation. A slot that a Pod
// uses and that this node does not hold is lost.
type Tracker struct {
	mu    sync.Mutex
	slots map[node.SlotClaim]*slotUse
	// virtual has the slots of virtual devices that are held or in use.
	virtual map[VirtualDevice]virtualSlot
	// pending has the slots of virtual devices whose reservation was sent without a final response.
	pending map[VirtualDevice]node.SlotClaim
	// refused is when an allocation was refused last. The kubelet then rejects the Pod. It admits
	// Pods one after the other, so it has recorded the devices of all Pods that it admitted before.
	refused time.Time
	// lastInUse is the last list of the kubelet. compared has the Instances that existed then and
	// still exist.
	lastInUse Devices
	compared  sets.Set[types.NamespacedName]
}

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker {
	return &Tracker{
		slots: map[node.SlotClaim]*slotUse{}, virtual: map[VirtualDevice]virtualSlot{}, pending: map[VirtualDevice]node.SlotClaim{},
	}
}

// slotUse is the observed use of a slot.
type slotUse struct {
	seen      bool // in a list of the kubelet
	allocated bool // to a Pod, by this process
	// missingSince is zero while the lists of the kubelet contain the slot.
	missingSince time.Time
	// takenBack is when the slot was taken back. It is zero once the slot is held.
	takenBack time.Time
}

// VirtualDevice is a device of akri.sh/<configuration> in the kubelet.
type VirtualDevice struct{ Resource, ID string }

func virtualDevice(claim node.SlotClaim) VirtualDevice {
	return VirtualDevice{claim.Resource(), claim.DeviceID()}
}

// virtualSlot is the slot of a virtual device. If this process allocated the device with this slot,
// no Pod uses another slot of the device.
type virtualSlot struct {
	claim     node.SlotClaim
	allocated bool
}

// AddPending records that a reservation is about to be sent.
func (t *Tracker) AddPending(claims ...node.SlotClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claim := range claims {
		if claim.VirtualID != "" {
			t.pending[virtualDevice(claim)] = claim
		}
	}
}

// Pending returns the slots of virtual devices whose reservation was sent without a final response.
func (t *Tracker) Pending() []node.SlotClaim {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.pending), node.SlotClaim.Compare)
}

// RemovePending records that a reservation was refused.
func (t *Tracker) RemovePending(claims ...node.SlotClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claim := range claims {
		delete(t.pending, virtualDevice(claim))
	}
}

// Reserved records slots that were reserved for a Pod. The kubelet may not list the Pod yet.
func (t *Tracker) Reserved(now time.Time, claims ...node.SlotClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claim := range claims {
		if previous, ok := t.virtual[virtualDevice(claim)]; ok && previous.claim != claim {
			delete(t.slots, previous.claim) // the Pod that had the virtual device has ended
		}
		t.slots[claim] = &slotUse{allocated: true, missingSince: now}
		t.setVirtual(claim, true)
		delete(t.pending, virtualDevice(claim))
	}
}

// Refused records that an allocation was refused.
func (t *Tracker) Refused(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = now
}

// Released records that unconfirmed slots were released. They are not lost.
func (t *Tracker) Released(claims ...node.SlotClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claim := range claims {
		delete(t.slots, claim)
	}
}

// TakenBack records a slot that was reserved because a Pod uses it. The Instance may not show the
// reservation yet.
func (t *Tracker) TakenBack(now time.Time, claim node.SlotClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[claim] == nil {
		t.slots[claim] = &slotUse{seen: true, takenBack: now}
	}
}

// Reset discards the observed use of all slots, so that useGrace starts again. Call it when the
// kubelet restarts or does not list its Pods.
func (t *Tracker) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.slots)
}

// Observation is the result of one list of the kubelet.
type Observation struct {
	// Idle slots were in use and are no longer.
	Idle []node.SlotClaim
	// Unconfirmed slots were not seen in use. The list does not contain every use.
	Unconfirmed []node.SlotClaim
}

// Observe compares the held slots with a list of the kubelet that was requested and received at the
// given times.
func (t *Tracker) Observe(requested, received time.Time, held []node.SlotClaim, inUse Devices) Observation {
	t.mu.Lock()
	defer t.mu.Unlock()
	var result Observation
	previous := t.slots
	t.slots = map[node.SlotClaim]*slotUse{}
	for claim, use := range previous {
		if use.recentlyAllocated(received) || received.Sub(use.takenBack) < useGrace {
			t.slots[claim] = use // even if the slot is not held: it may be lost
		}
	}
	for _, claim := range held {
		if t.isDuplicate(claim, held) {
			result.Idle = append(result.Idle, claim)
			continue
		}
		use := previous[claim]
		if use == nil {
			use = &slotUse{missingSince: requested}
		}
		use.takenBack = time.Time{}
		t.slots[claim] = use
		t.setVirtual(claim, false)
		use.observe(requested, received, t.refused, claim, inUse, &result)
	}
	maps.DeleteFunc(t.virtual, func(device VirtualDevice, slot virtualSlot) bool {
		return t.slots[slot.claim] == nil && !inUse.Has(device.Resource, device.ID)
	})
	t.lastInUse = inUse
	return result
}

func (u *slotUse) observe(requested, received, refused time.Time, claim node.SlotClaim, inUse Devices, result *Observation) {
	missing := received.Sub(u.missingSince)
	rejected := u.missingSince.Before(refused) && refused.Before(requested)
	switch {
	case u.missingSince.After(requested): // the list is older than the reservation
	case inUse.Has(claim.Resource(), claim.DeviceID()):
		u.seen, u.missingSince = true, time.Time{}
	case u.missingSince.IsZero():
		u.missingSince = received
	case u.seen && missing >= confirmInterval:
		result.Idle = append(result.Idle, claim)
	case !u.seen && (rejected || missing >= useGrace):
		result.Unconfirmed = append(result.Unconfirmed, claim)
	}
}

// NextList returns the interval from the last list of the kubelet to the next one.
func (t *Tracker) NextList(now time.Time, snapshot *node.Snapshot) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.needsCheck(now, snapshot) {
		return lostInterval
	}
	interval := listInterval
	for _, use := range t.slots {
		switch {
		case use.recentlyAllocated(now):
			interval = min(interval, startInterval)
		case use.seen && !use.missingSince.IsZero():
			interval = min(interval, confirmInterval)
		}
	}
	return interval
}

// recentlyAllocated reports whether the slot was allocated to a Pod that the kubelet may not list
// yet.
func (u *slotUse) recentlyAllocated(now time.Time) bool {
	return u.allocated && !u.seen && now.Sub(u.missingSince) < useGrace
}

// isDuplicate reports whether the virtual device holds this slot besides the slot with which it was
// allocated. That happens when a reservation succeeded whose response was lost.
func (t *Tracker) isDuplicate(claim node.SlotClaim, held []node.SlotClaim) bool {
	slot, ok := t.virtual[virtualDevice(claim)]
	return ok && slot.allocated && slot.claim != claim && slices.Contains(held, slot.claim)
}

func (t *Tracker) setVirtual(claim node.SlotClaim, allocated bool) {
	if claim.VirtualID == "" {
		return
	}
	device := virtualDevice(claim)
	allocated = allocated || t.virtual[device] == virtualSlot{claim, true}
	t.virtual[device] = virtualSlot{claim, allocated}
}
