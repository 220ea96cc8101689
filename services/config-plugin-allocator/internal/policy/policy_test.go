package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	allocationv1 "akri.sh/proto/akri/allocation/v1"
	"akri.sh/services/config-plugin-allocator/internal/policy"
)

const (
	first  = "akri-onvif-8120fe"
	second = "akri-onvif-a19705"
)

// The worked examples of the proposal: two cameras with a capacity of 2 each.
var (
	allFree       = []*allocationv1.Instance{{Name: first, FreeSlots: []uint32{0, 1}}, {Name: second, FreeSlots: []uint32{0, 1}}}
	fourIsClaimed = []*allocationv1.Instance{{Name: first, FreeSlots: []uint32{0}, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "4", Index: 1}}}, {Name: second, FreeSlots: []uint32{0, 1}}}
	allClaimed    = []*allocationv1.Instance{{Name: first, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "0", Index: 0}, {VirtualId: "1", Index: 1}}}, {Name: second, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "2", Index: 0}, {VirtualId: "3", Index: 1}}}}
	threeIsUsed   = []*allocationv1.Instance{{Name: first, FreeSlots: []uint32{0, 1}}, {Name: second, FreeSlots: []uint32{0}, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "3", Index: 1}}}}
	upstream      = []*allocationv1.Instance{{Name: first, FreeSlots: []uint32{1}, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "akri-onvif-0", Index: 0}}}, {Name: second, FreeSlots: []uint32{0, 1}}}
)

func TestList(t *testing.T) {
	for name, c := range map[string]struct {
		instances []*allocationv1.Instance
		want      []string
	}{
		"proposal: all slots of two cameras are free": {allFree, []string{"0", "1"}},
		"proposal: one slot is claimed as 4":          {fourIsClaimed, []string{"0", "1", "4"}},
		"proposal: all slots are claimed":             {allClaimed, []string{"0", "1", "2", "3"}},
		"proposal: the reconciler freed all but 3":    {threeIsUsed, []string{"0", "1", "3"}},
		"no Instances": {nil, []string{}},
		"ids of upstream Akri 0.13 are unchanged, after the numbers": {upstream, []string{"0", "1", "akri-onvif-0"}},
		"numbers sort by value":                     {[]*allocationv1.Instance{{Name: first, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "10", Index: 0}, {VirtualId: "9", Index: 1}}}}, []string{"9", "10"}},
		"an Instance without free slots adds no id": {[]*allocationv1.Instance{{Name: first}}, []string{}},
		"an id that holds two slots":                {[]*allocationv1.Instance{{Name: first, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "0", Index: 0}, {VirtualId: "0", Index: 1}}}}, []string{"0"}},
	} {
		require.Equal(t, c.want, policy.List(c.instances), name)
	}
}

func fresh(id, instance string, index uint32) *allocationv1.Allocation {
	return &allocationv1.Allocation{VirtualId: id, Instance: instance, Index: index, Reserve: true}
}

func kept(id, instance string, index uint32) *allocationv1.Allocation {
	return &allocationv1.Allocation{VirtualId: id, Instance: instance, Index: index}
}

// allocate calls Allocate with the ids of each container.
func allocate(instances []*allocationv1.Instance, ids [][]string) (allocations [][]*allocationv1.Allocation, err error) {
	var requests []*allocationv1.ContainerRequest
	for _, container := range ids {
		requests = append(requests, &allocationv1.ContainerRequest{VirtualIds: container})
	}
	containers, err := policy.Allocate(instances, requests)
	for _, container := range containers {
		allocations = append(allocations, container.GetAllocations())
	}
	return allocations, err
}

func TestAllocate(t *testing.T) {
	shared := []*allocationv1.Instance{{Name: first, FreeSlots: []uint32{0, 1}}}
	twice := []*allocationv1.Instance{{Name: second, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "0", Index: 1}}}, {Name: first, ClaimedSlots: []*allocationv1.ClaimedSlot{{VirtualId: "0", Index: 1}, {VirtualId: "0", Index: 0}}}}
	for name, c := range map[string]struct {
		instances  []*allocationv1.Instance
		containers [][]string
		want       [][]*allocationv1.Allocation
	}{
		"proposal: 4 is mapped to its slot, 0 and 1 to free ones": {fourIsClaimed, [][]string{{"4"}, {"0"}, {"1"}},
			[][]*allocationv1.Allocation{{kept("4", first, 1)}, {fresh("0", second, 0)}, {fresh("1", first, 0)}}},
		"proposal: 0 and 3 in one container": {threeIsUsed, [][]string{{"0", "3"}},
			[][]*allocationv1.Allocation{{fresh("0", first, 0), kept("3", second, 1)}}},
		"proposal: 0 and 1 in one container, 3 in another": {threeIsUsed, [][]string{{"0", "1"}, {"3"}},
			[][]*allocationv1.Allocation{{fresh("0", first, 0), fresh("1", second, 0)}, {kept("3", second, 1)}}},
		"proposal: 0 and 1 after the reconciler freed their slots": {threeIsUsed, [][]string{{"0", "1"}},
			[][]*allocationv1.Allocation{{fresh("0", first, 0), fresh("1", second, 0)}}},
		"a claimed id keeps its slot if it is last": {threeIsUsed, [][]string{{"0"}, {"3"}},
			[][]*allocationv1.Allocation{{fresh("0", first, 0)}, {kept("3", second, 1)}}},
		"equal Instances in the order of their names": {[]*allocationv1.Instance{allFree[1], allFree[0]}, [][]string{{"0", "1"}},
			[][]*allocationv1.Allocation{{fresh("0", first, 0), fresh("1", second, 0)}}},
		"a slot of one container is not free for the next": {allFree, [][]string{{"0"}, {"1"}},
			[][]*allocationv1.Allocation{{fresh("0", first, 0)}, {fresh("1", second, 0)}}},
		"two containers share an Instance up to its free slots": {shared, [][]string{{"0"}, {"1"}},
			[][]*allocationv1.Allocation{{fresh("0", first, 0)}, {fresh("1", first, 1)}}},
		"an id of upstream Akri 0.13 keeps its slot": {upstream, [][]string{{"akri-onvif-0", "0"}},
			[][]*allocationv1.Allocation{{kept("akri-onvif-0", first, 0), fresh("0", second, 0)}}},
		"an id that holds several slots keeps the first": {twice, [][]string{{"0"}}, [][]*allocationv1.Allocation{{kept("0", first, 0)}}},
		"an empty request gets no slots":                 {allFree, [][]string{{}}, [][]*allocationv1.Allocation{{}}},
	} {
		got, err := allocate(c.instances, c.containers)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestAllocateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		instances  []*allocationv1.Instance
		containers [][]string
		kind       error
		message    string
	}{
		"proposal: 0 and 1 map to the same camera": {allClaimed, [][]string{{"0", "1"}}, policy.ErrExhausted,
			`virtual devices "0" and "1" are slots of the same Instance akri-onvif-8120fe, a container can use only one of them`},
		"proposal: 0, 1 and 3 with two cameras": {threeIsUsed, [][]string{{"0", "1", "3"}}, policy.ErrExhausted,
			"not enough distinct devices on this node: 3 requested by a container, 2 available"},
		"three containers on two slots": {[]*allocationv1.Instance{{Name: first, FreeSlots: []uint32{0, 1}}}, [][]string{{"0"}, {"1"}, {"2"}}, policy.ErrExhausted,
			"not enough distinct devices on this node: 1 requested by a container, 0 available"},
		"an id that is not a number":             {allFree, [][]string{{"camera"}}, policy.ErrInvalid, `virtual device "camera" does not exist: its id must be claimed or a number`},
		"a number with a leading zero":           {allFree, [][]string{{"01"}}, policy.ErrInvalid, `virtual device "01" does not exist: its id must be claimed or a number`},
		"an id requested twice by one container": {allFree, [][]string{{"0", "0"}}, policy.ErrInvalid, `virtual device "0" is requested twice`},
		"an id requested by two containers":      {allFree, [][]string{{"0"}, {"0"}}, policy.ErrInvalid, `virtual device "0" is requested twice`},
	} {
		_, err := allocate(c.instances, c.containers)
		require.ErrorIs(t, err, c.kind, name)
		require.ErrorContains(t, err, c.message, name)
	}
}

func TestPrefer(t *testing.T) {
	for name, c := range map[string]struct {
		instances          []*allocationv1.Instance
		available, include []string
		size               int
		want               []string
	}{
		"free ids first":                                {threeIsUsed, []string{"3", "1", "0"}, nil, 2, []string{"0", "1"}},
		"mustInclude comes first":                       {threeIsUsed, []string{"0", "1", "3"}, []string{"3"}, 2, []string{"3", "0"}},
		"claimed ids of different Instances":            {allClaimed, []string{"0", "1", "2", "3"}, nil, 2, []string{"0", "2"}},
		"a claimed id after all free ids":               {fourIsClaimed, []string{"0", "4"}, nil, 2, []string{"0", "4"}},
		"filled up if it cannot be granted":             {allClaimed, []string{"0", "1", "2"}, nil, 3, []string{"0", "2", "1"}},
		"fewer than requested if no more are available": {allFree, []string{"0"}, nil, 2, []string{"0"}},
	} {
		got, err := policy.Prefer(c.instances, c.available, c.include, c.size)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	_, err := policy.Prefer(allFree, []string{"0"}, []string{"1"}, 1)
	require.ErrorIs(t, err, policy.ErrInvalid)
	require.EqualError(t, err, `virtual device "1" must be included and is not available`)
	_, err = policy.Prefer(allFree, []string{"0", "1"}, []string{"0", "1"}, 1)
	require.ErrorIs(t, err, policy.ErrInvalid)
	require.EqualError(t, err, `2 virtual devices must be included in 1`)
}
