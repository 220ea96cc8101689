package slots_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/node"
	"akri.sh/services/device-plugin-host/internal/slots"
)

var (
	slot    = node.Claim{Namespace: "default", Configuration: "akri-onvif", Instance: "akri-onvif-8120fe", Index: 1}
	virtual = node.Claim{Namespace: "default", Configuration: "akri-onvif", Instance: "akri-onvif-8120fe", Index: 2, VirtualID: "0"}
	inUse   = slots.Use{"akri.sh/akri-onvif-8120fe": {"akri-onvif-8120fe-1": true}, "akri.sh/akri-onvif": {"0": true}}
	noUse   = slots.Use{}
)

// step is one thing that happens to a tracker, at some time after the start.
type step struct {
	at       time.Duration
	reserved bool // both slots are reserved
	forget   bool // the kubelet is away
	use      slots.Use
	asked    time.Duration // when the answer was asked for, if not at once
	idle     bool          // whether both slots are idle by then
	doubtful bool          // whether both are held and were never seen in use for too long
	soon     bool
}

func TestWhenSlotsAreIdle(t *testing.T) {
	for name, steps := range map[string][]step{
		"in use, then missing twice": {
			{at: 0, reserved: true}, {at: 1 * time.Second, use: inUse}, {at: 2 * time.Second, use: noUse, soon: true},
			{at: 2500 * time.Millisecond, use: noUse, idle: true}, {at: 3500 * time.Millisecond, use: noUse, idle: true},
		},
		"in use, missing once, there again": {
			{at: 0, use: inUse}, {at: 1 * time.Second, use: noUse, soon: true}, {at: 2 * time.Second, use: inUse},
			{at: 3 * time.Second, use: noUse, soon: true}, {at: 4 * time.Second, use: noUse, idle: true},
		},
		"reserved and never seen": {
			{at: 0, reserved: true}, {at: 1 * time.Second, use: noUse}, {at: 19 * time.Second, use: noUse}, {at: 20 * time.Second, use: noUse, doubtful: true},
		},
		"held before we started and never seen": {
			{at: 0, use: noUse}, {at: 19 * time.Second, use: noUse}, {at: 20 * time.Second, use: noUse, doubtful: true},
		},
		"held before we started and in use": {
			{at: 0, use: inUse}, {at: 60 * time.Second, use: inUse}, {at: 61 * time.Second, use: noUse, soon: true}, {at: 62 * time.Second, use: noUse, idle: true},
		},
		"the kubelet starts anew and lists its pods late": {
			{at: 0, use: inUse}, {at: 1 * time.Second, forget: true}, {at: 2 * time.Second, use: noUse}, {at: 10 * time.Second, use: noUse},
			{at: 15 * time.Second, use: inUse}, {at: 16 * time.Second, use: noUse, soon: true}, {at: 17 * time.Second, use: noUse, idle: true},
		},
		"the pod went while the kubelet was away": {
			{at: 0, use: inUse}, {at: 1 * time.Second, forget: true}, {at: 100 * time.Second, use: noUse}, {at: 119 * time.Second, use: noUse},
			{at: 120 * time.Second, use: noUse, doubtful: true},
		},
		"given to the next pod before it was released": {
			{at: 0, use: inUse}, {at: 1 * time.Second, use: noUse, soon: true}, {at: 1400 * time.Millisecond, reserved: true},
			{at: 1500 * time.Millisecond, use: noUse}, {at: 10 * time.Second, use: inUse}, {at: 30 * time.Second, use: inUse},
		},
		"an answer older than the reservation tells nothing": {
			{at: 0, use: inUse}, {at: 5 * time.Second, reserved: true}, {at: 6 * time.Second, asked: 4 * time.Second, use: inUse},
			{at: 7 * time.Second, use: noUse}, {at: 24 * time.Second, use: noUse}, {at: 25 * time.Second, use: noUse, doubtful: true},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, steps) })
	}
}

func play(t *testing.T, steps []step) {
	t.Helper()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	held := []node.Claim{slot, virtual}
	var tracker slots.Tracker
	for _, s := range steps {
		now := start.Add(s.at)
		switch {
		case s.reserved:
			tracker.Reserved(now, held...)
			continue
		case s.forget:
			tracker.Forget()
			continue
		}
		asked := now
		if s.asked > 0 {
			asked = start.Add(s.asked)
		}
		got := tracker.Observe(asked, now, held, s.use)
		require.Equal(t, s.soon, got.Soon, "after %s", s.at)
		require.Equal(t, when(s.idle, held), got.Idle, "after %s", s.at)
		require.Equal(t, when(s.doubtful, held), got.Doubtful, "after %s", s.at)
	}
}

func when(yes bool, claims []node.Claim) []node.Claim {
	if yes {
		return claims
	}
	return nil
}

func TestASlotThatIsHeldAnewStartsAnew(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var tracker slots.Tracker
	tracker.Observe(start, start, []node.Claim{slot}, inUse)
	tracker.Observe(start, start.Add(time.Second), nil, noUse)
	for _, after := range []time.Duration{2 * time.Second, 10 * time.Second, 21 * time.Second} {
		now := start.Add(after)
		require.Empty(t, tracker.Observe(now, now, []node.Claim{slot}, noUse).Idle)
	}
}

func TestAVirtualDeviceThatIsGivenWithAnotherSlotHasTheFormerNoMore(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	other := virtual
	other.Index++
	var tracker slots.Tracker
	tracker.Reserved(start, virtual)
	tracker.Reserved(start, other)
	require.Equal(t, []node.Claim{virtual}, tracker.Observe(start, start, []node.Claim{virtual, other}, inUse).Idle)
	view := node.NewStore("node-a")
	view.SetInstances([]*instancev1.Instance{{Namespace: virtual.Namespace, Name: virtual.Instance, Configuration: virtual.Configuration, Capacity: 4, Slots: []*instancev1.Slot{
		{Index: virtual.Index, State: &instancev1.Slot_Free{Free: &instancev1.Free{}}},
		{Index: other.Index, State: &instancev1.Slot_Free{Free: &instancev1.Free{}}},
	}}}, 0)
	now, _ := view.Get()
	require.Equal(t, []node.Claim{other}, tracker.Lost(start, now, inUse).Free, "the former is not taken back")
}
