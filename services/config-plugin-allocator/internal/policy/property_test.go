package policy_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	allocationv1 "akri.sh/proto/akri/allocation/v1"
	"akri.sh/services/config-plugin-allocator/internal/policy"
)

// state draws Instances whose slots are free, held by another node, or claimed by an id. Each id
// claims one slot.
var state = rapid.Custom(func(t *rapid.T) []*allocationv1.Instance {
	instances := make([]*allocationv1.Instance, rapid.IntRange(0, 5).Draw(t, "instances"))
	ids := rapid.Permutation([]string{"0", "1", "2", "3", "5", "8", "10", "akri-0", "akri-1"}).Draw(t, "ids")
	for i := range instances {
		instances[i] = &allocationv1.Instance{Name: fmt.Sprintf("akri-%06x", i)}
		for index := range uint32(rapid.IntRange(1, 4).Draw(t, "capacity")) {
			switch kind := rapid.IntRange(0, 2).Draw(t, "slot"); {
			case kind == 0:
				instances[i].FreeSlots = append(instances[i].FreeSlots, index)
			case kind == 1 && len(ids) > 0:
				claim := &allocationv1.ClaimedSlot{VirtualId: ids[0], Index: index}
				instances[i].ClaimedSlots = append(instances[i].ClaimedSlots, claim)
				ids = ids[1:]
			}
		}
	}
	return instances
})

// slot is a slot of an Instance.
type slot struct {
	instance string
	index    uint32
}

// claimedSlots is an independent, simpler implementation of claims.
func claimedSlots(instances []*allocationv1.Instance) map[string]slot {
	slots := map[string]slot{}
	for _, instance := range instances {
		for _, claim := range instance.GetClaimedSlots() {
			slots[claim.GetVirtualId()] = slot{instance.GetName(), claim.GetIndex()}
		}
	}
	return slots
}

func isFree(instances []*allocationv1.Instance, wanted slot) bool {
	for _, instance := range instances {
		for _, index := range instance.GetFreeSlots() {
			if instance.GetName() == wanted.instance && index == wanted.index {
				return true
			}
		}
	}
	return false
}

func TestListProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instances := state.Draw(t, "state")
		listed := policy.List(instances)
		require.Equal(t, listed, policy.List(instances), "deterministic")
		want := len(claimedSlots(instances))
		for _, instance := range instances {
			want += min(1, len(instance.GetFreeSlots()))
		}
		require.Len(t, listed, want)
		unique := map[string]bool{}
		for _, id := range listed {
			unique[id] = true
		}
		require.Len(t, unique, want)
		for id := range claimedSlots(instances) {
			require.Contains(t, listed, id)
		}
	})
}

func TestAllocateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instances := state.Draw(t, "state")
		containers := split(t, rapid.Permutation(policy.List(instances)).Draw(t, "order"))
		got, err := allocate(instances, containers)
		again, errAgain := allocate(instances, containers)
		require.Equal(t, got, again, "deterministic")
		require.Equal(t, err, errAgain)
		if err != nil {
			require.ErrorIs(t, err, policy.ErrExhausted)
			return
		}
		used := map[slot]bool{}
		for i, allocations := range got {
			instancesOfContainer := map[string]bool{}
			for j, a := range allocations {
				allocated := slot{a.GetInstance(), a.GetIndex()}
				require.Equal(t, containers[i][j], a.GetVirtualId())
				require.False(t, instancesOfContainer[a.GetInstance()], "the slots of a container belong to different Instances")
				require.False(t, used[allocated], "a slot is allocated once")
				instancesOfContainer[a.GetInstance()], used[allocated] = true, true
				if claimed, ok := claimedSlots(instances)[a.GetVirtualId()]; ok {
					require.Equal(t, claimed, allocated, "a claimed id keeps its slot")
					require.False(t, a.GetReserve())
				} else {
					require.True(t, isFree(instances, allocated))
					require.True(t, a.GetReserve())
				}
			}
		}
	})
}

// split distributes ids over up to three containers and omits some.
func split(t *rapid.T, ids []string) [][]string {
	containers := make([][]string, rapid.IntRange(1, 3).Draw(t, "containers"))
	for _, id := range ids {
		if to := rapid.IntRange(0, len(containers)).Draw(t, "to "+id); to < len(containers) {
			containers[to] = append(containers[to], id)
		}
	}
	return containers
}

func TestPreferIsGrantedIfPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instances := state.Draw(t, "state")
		available := policy.List(instances)
		size := rapid.IntRange(0, len(available)).Draw(t, "size")
		got, err := policy.Prefer(instances, available, nil, size)
		require.NoError(t, err)
		require.Len(t, got, size)
		_, err = allocate(instances, [][]string{got})
		require.Equal(t, grantable(instances, available, size), err == nil)
	})
}

// grantable tries every choice of size ids.
func grantable(instances []*allocationv1.Instance, available []string, size int) bool {
	for set := range 1 << len(available) {
		var ids []string
		for i, id := range available {
			if set&(1<<i) != 0 {
				ids = append(ids, id)
			}
		}
		if len(ids) != size {
			continue
		}
		if _, err := allocate(instances, [][]string{ids}); err == nil {
			return true
		}
	}
	return false
}

func TestOrderOfInstancesIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instances := state.Draw(t, "state")
		shuffled := rapid.Permutation(instances).Draw(t, "shuffled")
		require.Equal(t, policy.List(instances), policy.List(shuffled))
		ids := make([]string, rapid.IntRange(0, 3).Draw(t, "requested"))
		for i := range ids {
			ids[i] = strconv.Itoa(100 + i)
		}
		got, _ := allocate(instances, [][]string{ids})
		again, _ := allocate(shuffled, [][]string{ids})
		require.Equal(t, got, again)
	})
}
