package node_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/node"
)

func instance(namespace, name string, revision uint64, node string) *instancev1.Instance {
	slot := &instancev1.Slot{State: &instancev1.Slot_Free{Free: &instancev1.Free{}}}
	if node != "" {
		slot.State = &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: node}}
	}
	return &instancev1.Instance{Namespace: namespace, Name: name, Configuration: "c", Capacity: 1, Revision: revision, Slots: []*instancev1.Slot{slot}}
}

func held(s *node.Store) int {
	view, _ := s.Get()
	return len(view.Held())
}

func TestWhatIsOlderDoesNotReplaceWhatIsNewer(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 1, "")}, 0)
	s.Refresh([]*instancev1.Instance{instance("ns", "i", 3, "node-a")})
	require.Equal(t, 1, held(s))
	s.Update(instance("ns", "i", 2, ""))
	require.Equal(t, 1, held(s), "an event that the answer overtook")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 2, "")}, 0)
	require.Equal(t, 1, held(s), "a snapshot of a replica that lags")
	s.Update(instance("ns", "i", 4, ""))
	require.Equal(t, 0, held(s))
	s.Update(instance("ns", "i", 0, "node-a"))
	require.Equal(t, 1, held(s), "a revision that is not known is the newest")
}

func TestAnAnswerDoesNotBringBackWhatTheWatchRemoved(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 1, "node-a")}, 0)
	s.Remove(node.Key{Namespace: "ns", Name: "i"}, 0)
	s.Refresh([]*instancev1.Instance{instance("ns", "i", 2, "node-a")})
	require.Equal(t, 0, held(s))
}

func TestAbsenceThatIsOlderThanWhatIsKnownRemovesNothing(t *testing.T) {
	key := node.Key{Namespace: "ns", Name: "i"}
	for name, c := range map[string]struct {
		remove func(s *node.Store)
		held   int
	}{
		"a snapshot of a replica that lags":  {func(s *node.Store) { s.SetInstances(nil, 4) }, 1},
		"a removal of a replica that lags":   {func(s *node.Store) { s.Remove(key, 4) }, 1},
		"a snapshot of the same time":        {func(s *node.Store) { s.SetInstances(nil, 5) }, 0},
		"a removal that came later":          {func(s *node.Store) { s.Remove(key, 6) }, 0},
		"a snapshot of a time not known":     {func(s *node.Store) { s.SetInstances(nil, 0) }, 0},
		"a removal at a time not known":      {func(s *node.Store) { s.Remove(key, 0) }, 0},
		"a snapshot that lags, then removal": {func(s *node.Store) { s.SetInstances(nil, 4); s.Remove(key, 7) }, 0},
	} {
		s := node.NewStore("node-a")
		s.SetInstances([]*instancev1.Instance{instance("ns", "i", 5, "node-a")}, 5)
		c.remove(s)
		require.Equal(t, c.held, held(s), name)
	}
}

func TestWhatDoesNotChangeIsNoNews(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("ns", "i", 1, "")}, 0)
	_, changed := s.Get()
	s.Update(instance("ns", "i", 1, ""))
	s.Remove(node.Key{Namespace: "ns", Name: "other"}, 0)
	select {
	case <-changed:
		t.Fatal("nothing changed")
	default:
	}
}

func TestOfTwoInstancesWithOneNameTheFirstNamespaceCounts(t *testing.T) {
	s := node.NewStore("node-a")
	s.SetInstances([]*instancev1.Instance{instance("b", "i", 1, ""), instance("a", "i", 1, "")}, 0)
	var inventory []*discoveryv1.ConfigurationDevices
	for _, namespace := range []string{"b", "a"} {
		inventory = append(inventory, &discoveryv1.ConfigurationDevices{
			Namespace: namespace, Name: "c", Complete: true, Devices: []*discoveryv1.Device{{Instance: "i"}},
		})
	}
	s.SetInventory(inventory)
	view, _ := s.Get()
	require.Equal(t, "a", view.Devices["i"].Instance.GetNamespace())
	require.Equal(t, map[string]node.Key{"c": {Namespace: "a", Name: "c"}}, view.Configurations)
}

func TestADeviceThatIsNotSeenKeepsItsClaimsAndOffersNothing(t *testing.T) {
	s := node.NewStore("node-a")
	id := "0"
	claimed := instance("ns", "i", 1, "")
	claimed.Capacity = 2
	claimed.Slots = append(claimed.Slots, &instancev1.Slot{Index: 1, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: "node-a", VirtualId: &id}}})
	s.SetInstances([]*instancev1.Instance{claimed}, 0)
	view, _ := s.Get()
	state := view.State(node.Key{Namespace: "ns", Name: "c"})
	require.Len(t, state.GetInstances(), 1)
	require.Empty(t, state.GetInstances()[0].GetFreeSlots())
	require.Equal(t, "0", state.GetInstances()[0].GetClaimedSlots()[0].GetVirtualId())
}
