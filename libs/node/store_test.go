package node_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/node"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

func instance(namespace, name string, revision uint64, node string) *instancev1.Instance {
	slot := &instancev1.Slot{State: &instancev1.Slot_Free{Free: &instancev1.Free{}}}
	if node != "" {
		slot.State = &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: node}}
	}
	return &instancev1.Instance{
		Namespace: namespace, Name: name, Configuration: "c", Capacity: 1, Revision: revision, Slots: []*instancev1.Slot{slot},
	}
}

func heldSlots(s *node.Store) int {
	snapshot, _ := s.Get()
	return len(snapshot.HeldSlots())
}

func TestStoreKeepsNewerInstance(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 1, "")}, 0)
	s.Refresh([]*instancev1.Instance{instance("ns", "i", 3, "node-a")})
	require.Equal(t, 1, heldSlots(s))
	s.Update(instance("ns", "i", 2, ""))
	require.Equal(t, 1, heldSlots(s), "watch event that is older than the response")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 2, "")}, 0)
	require.Equal(t, 1, heldSlots(s), "snapshot of a replica that lags")
	s.Update(instance("ns", "i", 4, ""))
	require.Equal(t, 0, heldSlots(s))
	s.Update(instance("ns", "i", 0, "node-a"))
	require.Equal(t, 1, heldSlots(s), "revision 0 is the newest")
}

func TestRefreshAddsNoInstance(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 1, "node-a")}, 0)
	s.Remove(types.NamespacedName{Namespace: "ns", Name: "i"}, 0)
	s.Refresh([]*instancev1.Instance{instance("ns", "i", 2, "node-a")})
	require.Equal(t, 0, heldSlots(s))
}

func TestStoreIgnoresOlderAbsence(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "i"}
	for description, c := range map[string]struct {
		remove func(s *node.Store)
		held   int
	}{
		"snapshot of a replica that lags":          {func(s *node.Store) { s.SetInstances(nil, 4) }, 1},
		"removal by a replica that lags":           {func(s *node.Store) { s.Remove(name, 4) }, 1},
		"snapshot at the same revision":            {func(s *node.Store) { s.SetInstances(nil, 5) }, 0},
		"removal at a later revision":              {func(s *node.Store) { s.Remove(name, 6) }, 0},
		"snapshot without a revision":              {func(s *node.Store) { s.SetInstances(nil, 0) }, 0},
		"removal without a revision":               {func(s *node.Store) { s.Remove(name, 0) }, 0},
		"snapshot that lags, then a later removal": {func(s *node.Store) { s.SetInstances(nil, 4); s.Remove(name, 7) }, 0},
	} {
		s := node.NewStore("node-a")
		s.SetInstances([]*instancev1.Instance{instance("ns", "i", 5, "node-a")}, 5)
		c.remove(s)
		require.Equal(t, c.held, heldSlots(s), description)
	}
}

func TestStoreDoesNotPublishWithoutChange(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 1, "")}, 0)
	_, changed := s.Get()
	s.Update(instance("ns", "i", 1, ""))
	s.Update(instance("ns", "i", 3, ""))
	s.Update(instance("ns", "i", 2, "node-a"))
	s.Remove(types.NamespacedName{Namespace: "ns", Name: "other"}, 0)
	select {
	case <-changed:
		t.Fatal("published without a change")
	default:
	}
}

func TestStoreIsReadyAfterBothSources(t *testing.T) {
	s := node.NewStore("node-a")
	require.EqualError(t, s.CheckReady(t.Context()),
		"no device list received from discovery-operator yet\nno Instances received from instance-writer yet")
	s.SetDevices(nil)
	require.EqualError(t, s.CheckReady(t.Context()), "no Instances received from instance-writer yet")
	s.SetInstances(nil, 1)
	require.NoError(t, s.CheckReady(t.Context()))
}

func TestFirstNamespaceWinsAmongEqualNames(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("b", "i", 1, ""), instance("a", "i", 1, "")}, 0)
	var devices []*discoveryv1.ConfigurationDevices
	for _, namespace := range []string{"b", "a"} {
		devices = append(devices, &discoveryv1.ConfigurationDevices{
			Namespace: namespace, Name: "c", Complete: true, Devices: []*discoveryv1.Device{{Instance: "i"}},
		})
	}
	s.SetDevices(devices)
	snapshot, _ := s.Get()
	require.Equal(t, "a", snapshot.Devices["i"].Instance.GetNamespace())
	require.Equal(t, map[string]types.NamespacedName{"c": {Namespace: "a", Name: "c"}}, snapshot.Configurations)
}

// Two devices have one short name. Only the device id identifies the device of an Instance.
func TestDevicesWithOneShortName(t *testing.T) {
	const short, long = "c-8120fe", "c-8120fex55e2ca"
	one, two := &discoveryv1.Device{Instance: short, Id: "one"}, &discoveryv1.Device{Instance: short, Id: "two"}
	withID := func(name, id string) *instancev1.Instance {
		i := instance("ns", name, 1, "")
		i.DeviceId = id
		return i
	}
	for name, c := range map[string]struct {
		devices   []*discoveryv1.Device
		instances []*instancev1.Instance
		want      map[string]string // Instance → id
	}{
		"ids":                          {[]*discoveryv1.Device{one, two}, []*instancev1.Instance{withID(short, "two"), withID(long, "one")}, map[string]string{short: "two", long: "one"}},
		"an id that is not seen":       {[]*discoveryv1.Device{one}, []*instancev1.Instance{withID(short, "two")}, map[string]string{}},
		"unknown id of one device":     {[]*discoveryv1.Device{one}, []*instancev1.Instance{withID(short, "")}, map[string]string{short: "one"}},
		"unknown id of two devices":    {[]*discoveryv1.Device{one, two}, []*instancev1.Instance{withID(short, "")}, map[string]string{}},
		"unknown id and a longer name": {[]*discoveryv1.Device{one}, []*instancev1.Instance{withID(long, "")}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := node.NewStore("node-a")
			s.SetInstances(c.instances, 0)
			s.SetDevices([]*discoveryv1.ConfigurationDevices{{Namespace: "ns", Name: "c", Complete: true, Devices: c.devices}})
			snapshot, _ := s.Get()
			got := map[string]string{}
			for name, device := range snapshot.Devices {
				got[name] = device.Spec.GetId()
			}
			require.Equal(t, c.want, got)
		})
	}
}

// An incomplete list replaces the devices in it and keeps the others, also those with one short
// name.
func TestIncompleteListKeepsDevices(t *testing.T) {
	const short, long = "c-8120fe", "c-8120fex55e2ca"
	s := node.NewStore("node-a")
	one, two := instance("ns", short, 1, ""), instance("ns", long, 1, "")
	one.DeviceId, two.DeviceId = "one", "two"
	s.SetInstances([]*instancev1.Instance{one, two}, 0)
	list := func(complete bool, devices ...*discoveryv1.Device) {
		s.SetDevices([]*discoveryv1.ConfigurationDevices{{Namespace: "ns", Name: "c", Complete: complete, Devices: devices}})
	}
	list(true, &discoveryv1.Device{Instance: short, Id: "one"}, &discoveryv1.Device{Instance: short, Id: "two"})
	before, _ := s.Get()
	list(false, &discoveryv1.Device{Instance: short, Id: "two", Shared: true})
	after, _ := s.Get()
	require.False(t, before.Devices[long].Spec.GetShared())
	require.True(t, after.Devices[long].Spec.GetShared())
	require.Equal(t, "one", after.Devices[short].Spec.GetId())
	list(true)
	snapshot, _ := s.Get()
	require.Empty(t, snapshot.Devices)
}

func TestUnseenDeviceKeepsClaimsAndHasNoFreeSlots(t *testing.T) {
	s := node.NewStore("node-a")
	id := "0"
	claimed := instance("ns", "i", 1, "")
	claimed.Capacity = 2
	claimed.Slots = append(claimed.Slots, &instancev1.Slot{
		Index: 1, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: "node-a", VirtualId: &id}},
	})
	s.SetInstances([]*instancev1.Instance{claimed}, 0)
	snapshot, _ := s.Get()
	state := snapshot.AllocationState(types.NamespacedName{Namespace: "ns", Name: "c"})
	require.Len(t, state.GetInstances(), 1)
	require.Empty(t, state.GetInstances()[0].GetFreeSlots())
	require.Equal(t, "0", state.GetInstances()[0].GetClaimedSlots()[0].GetVirtualId())
}

// Device plugins treat a slot of a ResourceClaim as one of another node, also on the node of the
// claim: they neither offer nor release it.
func TestSlotsOfClaims(t *testing.T) {
	s := node.NewStore("node-a")
	i := instance("default", "c-111111", 1, "")
	for index, holder := range []string{"node-a", "node-b"} {
		i.Slots = append(i.Slots, &instancev1.Slot{
			Index: uint32(index) + 1, State: &instancev1.Slot_Claim{Claim: &instancev1.ClaimHolder{Node: holder, Uid: "uid"}},
		})
	}
	i.Capacity = 3
	s.SetInstances([]*instancev1.Instance{i}, 1)
	s.SetDevices([]*discoveryv1.ConfigurationDevices{{
		Namespace: "default", Name: "c", Complete: true, Devices: []*discoveryv1.Device{{Id: "d", Instance: "c-111111"}},
	}})
	snapshot, _ := s.Get()
	require.Empty(t, snapshot.HeldSlots())
	own := node.NewSlotClaim(i, 1, "")
	require.Equal(t, node.SlotTaken, snapshot.SlotState(own))
	own.ClaimUID = "other"
	require.Equal(t, node.SlotTaken, snapshot.SlotState(own))
	own.ClaimUID = "uid"
	require.Equal(t, node.SlotHeld, snapshot.SlotState(own))
	require.Equal(t, []node.SlotClaim{own}, snapshot.ClaimSlots())
	state := snapshot.AllocationState(types.NamespacedName{Namespace: "default", Name: "c"}).GetInstances()
	require.Len(t, state, 1)
	require.Equal(t, []uint32{0}, state[0].GetFreeSlots())
	require.Empty(t, state[0].GetClaimedSlots())
}
