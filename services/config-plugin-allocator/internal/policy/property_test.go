package policy_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"akri.sh/services/config-plugin-allocator/internal/policy"
)

// state draws Instances whose slots are free, held by another node, or claimed by an id. Each id
// claims one slot.
var state = rapid.Custom(func(t *rapid.T) []policy.Instance {
	instances := make([]policy.Instance, rapid.IntRange(0, 5).Draw(t, "instances"))
	ids := rapid.Permutation([]string{"0", "1", "2", "3", "5", "8", "10", "akri-0", "akri-1"}).Draw(t, "ids")
	for i := range instances {
		instances[i].Name = fmt.Sprintf("akri-%06x", i)
		for index := range uint32(rapid.IntRange(1, 4).Draw(t, "capacity")) {
			switch kind := rapid.IntRange(0, 2).Draw(t, "slot"); {
			case kind == 0:
				instances[i].Free = append(instances[i].Free, index)
			case kind == 1 && len(ids) > 0:
				instances[i].Claimed = append(instances[i].Claimed, policy.Claim{VirtualID: ids[0], Index: index})
				ids = ids[1:]
			}
		}
	}
	return instances
})

// claimedSlots is an independent, simpler implementation of claims.
func claimedSlots(instances []policy.Instance) map[string]policy.Slot {
	slots := map[string]policy.Slot{}
	for _, instance := range instances {
		for _, claim := range instance.Claimed {
			slots[claim.VirtualID] = policy.Slot{Instance: instance.Name, Index: claim.Index}
		}
	}
	return slots
}

func isFree(instances []policy.Instance, slot policy.Slot) bool {
	for _, instance := range instances {
		for _, index := range instance.Free {
			if instance.Name == slot.Instance && index == slot.Index {
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
			want += min(1, len(instance.Free))
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
		got, err := policy.Allocate(instances, containers)
		again, errAgain := policy.Allocate(instances, containers)
		require.Equal(t, got, again, "deterministic")
		require.Equal(t, err, errAgain)
		if err != nil {
			require.ErrorIs(t, err, policy.ErrExhausted)
			return
		}
		used := map[policy.Slot]bool{}
		for i, allocations := range got {
			instancesOfContainer := map[string]bool{}
			for j, a := range allocations {
				require.Equal(t, containers[i][j], a.VirtualID)
				require.False(t, instancesOfContainer[a.Slot.Instance], "the slots of a container belong to different Instances")
				require.False(t, used[a.Slot], "a slot is allocated once")
				instancesOfContainer[a.Slot.Instance], used[a.Slot] = true, true
				if claimed, ok := claimedSlots(instances)[a.VirtualID]; ok {
					require.Equal(t, claimed, a.Slot, "a claimed id keeps its slot")
					require.False(t, a.Reserve)
				} else {
					require.True(t, isFree(instances, a.Slot))
					require.True(t, a.Reserve)
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
		_, err = policy.Allocate(instances, [][]string{got})
		require.Equal(t, grantable(instances, available, size), err == nil)
	})
}

// grantable tries every choice of size ids.
func grantable(instances []policy.Instance, available []string, size int) bool {
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
		if _, err := policy.Allocate(instances, [][]string{ids}); err == nil {
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
		got, _ := policy.Allocate(instances, [][]string{ids})
		again, _ := policy.Allocate(shuffled, [][]string{ids})
		require.Equal(t, got, again)
	})
}
