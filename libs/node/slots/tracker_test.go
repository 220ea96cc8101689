package slots_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

var (
	slot    = node.SlotClaim{Namespace: "default", Configuration: "akri-onvif", Instance: "akri-onvif-8120fe", Index: 1}
	virtual = node.SlotClaim{Namespace: "default", Configuration: "akri-onvif", Instance: "akri-onvif-8120fe", Index: 2, VirtualID: "0"}
	inUse   = slots.Devices{"akri.sh/akri-onvif-8120fe": sets.New("akri-onvif-8120fe-1"), "akri.sh/akri-onvif": sets.New("0")}
	unused  = slots.Devices{}
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// step is one event of a tracker and the expected observation. It is an observation unless
// reserved, refused or reset is set.
type step struct {
	at          time.Duration // since the start
	reserved    bool          // both slots are reserved
	refused     bool          // an allocation is refused
	reset       bool          // the kubelet is unavailable
	devices     slots.Devices
	requested   time.Duration // when the list was requested, if not at the same time
	idle        bool          // expect both slots to be idle
	unconfirmed bool          // expect both slots to be unconfirmed
	next        time.Duration // expected interval to the next list, if not a second
}

// The intervals to the next list of the kubelet.
const (
	confirm = 500 * time.Millisecond // a slot that was in use is missing
	starts  = 250 * time.Millisecond // a slot was allocated and is in no list yet
)

func TestObserve(t *testing.T) {
	for name, steps := range map[string][]step{
		"in use, then missing twice": {
			{at: 0, reserved: true}, {at: 1 * time.Second, devices: inUse}, {at: 2 * time.Second, devices: unused, next: confirm},
			{at: 2500 * time.Millisecond, devices: unused, idle: true, next: confirm}, {at: 3500 * time.Millisecond, devices: unused, idle: true, next: confirm},
		},
		"in use, missing once, in use again": {
			{at: 0, devices: inUse}, {at: 1 * time.Second, devices: unused, next: confirm}, {at: 2 * time.Second, devices: inUse},
			{at: 3 * time.Second, devices: unused, next: confirm}, {at: 4 * time.Second, devices: unused, idle: true, next: confirm},
		},
		"reserved and never in use": {
			{at: 0, reserved: true}, {at: 1 * time.Second, devices: unused, next: starts}, {at: 19 * time.Second, devices: unused, next: starts},
			{at: 20 * time.Second, devices: unused, unconfirmed: true},
		},
		"held at the start and never in use": {
			{at: 0, devices: unused}, {at: 19 * time.Second, devices: unused}, {at: 20 * time.Second, devices: unused, unconfirmed: true},
		},
		"held at the start and in use": {
			{at: 0, devices: inUse}, {at: 60 * time.Second, devices: inUse}, {at: 61 * time.Second, devices: unused, next: confirm},
			{at: 62 * time.Second, devices: unused, idle: true, next: confirm},
		},
		"the kubelet restarts and lists its Pods late": {
			{at: 0, devices: inUse}, {at: 1 * time.Second, reset: true}, {at: 2 * time.Second, devices: unused},
			{at: 10 * time.Second, devices: unused}, {at: 15 * time.Second, devices: inUse},
			{at: 16 * time.Second, devices: unused, next: confirm}, {at: 17 * time.Second, devices: unused, idle: true, next: confirm},
		},
		"the Pod ends while the kubelet is unavailable": {
			{at: 0, devices: inUse}, {at: 1 * time.Second, reset: true}, {at: 100 * time.Second, devices: unused},
			{at: 119 * time.Second, devices: unused}, {at: 120 * time.Second, devices: unused, unconfirmed: true},
		},
		"allocated to the next Pod before the release": {
			{at: 0, devices: inUse}, {at: 1 * time.Second, devices: unused, next: confirm}, {at: 1400 * time.Millisecond, reserved: true},
			{at: 1500 * time.Millisecond, devices: unused, next: starts}, {at: 10 * time.Second, devices: inUse}, {at: 30 * time.Second, devices: inUse},
		},
		"a list that is older than the reservation is ignored": {
			{at: 0, devices: inUse}, {at: 5 * time.Second, reserved: true}, {at: 6 * time.Second, requested: 4 * time.Second, devices: inUse, next: starts},
			{at: 7 * time.Second, devices: unused, next: starts}, {at: 24 * time.Second, devices: unused, next: starts},
			{at: 25 * time.Second, devices: unused, unconfirmed: true},
		},
		"the allocation of the next resource is refused": {
			{at: 0, reserved: true}, {at: 1 * time.Second, refused: true},
			{at: 2 * time.Second, devices: unused, unconfirmed: true, next: starts},
		},
		"a list that is older than the refusal is ignored": {
			{at: 0, reserved: true}, {at: 2 * time.Second, refused: true},
			{at: 3 * time.Second, requested: 1 * time.Second, devices: unused, next: starts},
			{at: 4 * time.Second, devices: unused, unconfirmed: true, next: starts},
		},
		"reserved after a refusal": {
			{at: 0, refused: true}, {at: 1 * time.Second, reserved: true}, {at: 2 * time.Second, devices: unused, next: starts},
			{at: 21 * time.Second, devices: unused, unconfirmed: true},
		},
		"in use at a refusal": {
			{at: 0, reserved: true}, {at: 1 * time.Second, devices: inUse}, {at: 2 * time.Second, refused: true},
			{at: 3 * time.Second, devices: inUse}, {at: 4 * time.Second, devices: unused, next: confirm},
			{at: 5 * time.Second, devices: unused, idle: true, next: confirm},
		},
		"the kubelet restarts after a refusal": {
			{at: 0, reserved: true}, {at: 1 * time.Second, refused: true}, {at: 2 * time.Second, reset: true},
			{at: 3 * time.Second, devices: unused}, {at: 23 * time.Second, devices: unused, unconfirmed: true},
		},
	} {
		t.Run(name, func(t *testing.T) { runSteps(t, steps) })
	}
}

func runSteps(t *testing.T, steps []step) {
	t.Helper()
	held := []node.SlotClaim{slot, virtual}
	tracker := slots.NewTracker()
	noInstances, _ := node.NewStore("node-a").Get()
	for _, s := range steps {
		now := start.Add(s.at)
		switch {
		case s.reserved:
			tracker.Reserved(now, held...)
			continue
		case s.refused:
			tracker.Refused(now)
			continue
		case s.reset:
			tracker.Reset()
			continue
		}
		requested := now
		if s.requested > 0 {
			requested = start.Add(s.requested)
		}
		observed := tracker.Observe(requested, now, held, s.devices)
		require.Equal(t, cmp.Or(s.next, time.Second), tracker.NextList(now, noInstances), "after %s", s.at)
		require.Equal(t, heldIf(s.idle, held), observed.Idle, "after %s", s.at)
		require.Equal(t, heldIf(s.unconfirmed, held), observed.Unconfirmed, "after %s", s.at)
	}
}

func heldIf(condition bool, claims []node.SlotClaim) []node.SlotClaim {
	if condition {
		return claims
	}
	return nil
}

func TestReservedAgainStartsNewGrace(t *testing.T) {
	tracker := slots.NewTracker()
	tracker.Observe(start, start, []node.SlotClaim{slot}, inUse)
	tracker.Observe(start, start.Add(time.Second), nil, unused)
	for _, after := range []time.Duration{2 * time.Second, 10 * time.Second, 21 * time.Second} {
		now := start.Add(after)
		require.Empty(t, tracker.Observe(now, now, []node.SlotClaim{slot}, unused).Idle)
	}
}

func TestVirtualDeviceKeepsOneSlot(t *testing.T) {
	other := virtual
	other.Index++
	tracker := slots.NewTracker()
	tracker.Reserved(start, virtual)
	tracker.Reserved(start, other)
	held := []node.SlotClaim{virtual, other}
	require.Equal(t, []node.SlotClaim{virtual}, tracker.Observe(start, start, held, inUse).Idle)
	store := node.NewStore("node-a")
	store.SetInstances([]*instancev1.Instance{{
		Namespace: virtual.Namespace, Name: virtual.Instance, Configuration: virtual.Configuration, Capacity: 4,
		Slots: []*instancev1.Slot{
			{Index: virtual.Index, State: &instancev1.Slot_Free{Free: &instancev1.Free{}}},
			{Index: other.Index, State: &instancev1.Slot_Free{Free: &instancev1.Free{}}},
		},
	}}, 0)
	snapshot, _ := store.Get()
	require.Equal(t, []node.SlotClaim{other}, tracker.Lost(start, snapshot, inUse).Free, "the previous slot is not taken back")
}

// The first list after a slot was taken back may come before the Instance shows the reservation. If
// the Pod has ended by then, the slot is idle after the next two lists, not after useGrace.
func TestTakenBackSlotIsIdleSoon(t *testing.T) {
	tracker := slots.NewTracker()
	held := []node.SlotClaim{slot}
	observe := func(after time.Duration, held []node.SlotClaim, devices slots.Devices) slots.Observation {
		return tracker.Observe(start.Add(after), start.Add(after), held, devices)
	}
	observe(0, nil, inUse)
	tracker.TakenBack(start, slot)
	observe(time.Second, nil, unused)
	require.Empty(t, observe(2*time.Second, held, unused).Idle)
	require.Equal(t, held, observe(3*time.Second, held, unused).Idle)
}
