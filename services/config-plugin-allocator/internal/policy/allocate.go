package policy

import (
	"fmt"
	"slices"
)

// Allocate maps the virtual ids of each container to slots, in the order of the request. The slots
// of one container belong to different Instances. Containers may share an Instance while it has
// free slots.
func Allocate(instances []Instance, containers [][]string) ([][]Allocation, error) {
	if err := checkDistinct(containers); err != nil {
		return nil, err
	}
	claimed := claims(instances)
	free := freeSlots(instances)
	result := make([][]Allocation, 0, len(containers))
	for _, ids := range containers {
		allocations, err := allocateContainer(claimed, free, ids)
		if err != nil {
			return nil, err
		}
		result = append(result, allocations)
	}
	return result, nil
}

func checkDistinct(containers [][]string) error {
	seen := map[string]bool{}
	for _, ids := range containers {
		for _, id := range ids {
			if seen[id] {
				return fmt.Errorf("%w: virtual device %q is requested twice", ErrInvalid, id)
			}
			seen[id] = true
		}
	}
	return nil
}

// pool has the free slots of each Instance in ascending order. names is sorted.
type pool struct {
	names []string
	free  map[string][]uint32
}

func freeSlots(instances []Instance) *pool {
	p := &pool{names: withFreeSlot(instances), free: map[string][]uint32{}}
	slices.Sort(p.names)
	for _, instance := range instances {
		p.free[instance.Name] = slices.Sorted(slices.Values(instance.Free))
	}
	return p
}

func allocateContainer(claimed map[string]Slot, free *pool, ids []string) ([]Allocation, error) {
	result := make([]Allocation, len(ids))
	used := map[string]string{} // Instance → id
	var unclaimed []int
	for i, id := range ids {
		slot, err := slotOf(claimed, id)
		if err != nil {
			return nil, err
		}
		if slot == nil {
			unclaimed = append(unclaimed, i)
			continue
		}
		if other, ok := used[slot.Instance]; ok {
			return nil, fmt.Errorf("%w: virtual devices %q and %q are slots of the same Instance %s, a container can use only one of them",
				ErrExhausted, other, id, slot.Instance)
		}
		used[slot.Instance] = id
		result[i] = Allocation{VirtualID: id, Slot: *slot}
	}
	for _, i := range unclaimed {
		slot, ok := free.take(used)
		if !ok {
			return nil, fmt.Errorf("%w: not enough distinct devices on this node: %d requested by a container, %d available",
				ErrExhausted, len(ids), len(used))
		}
		used[slot.Instance] = ids[i]
		result[i] = Allocation{VirtualID: ids[i], Slot: slot, Reserve: true}
	}
	return result, nil
}

// take removes and returns the lowest free slot of the unused Instance with most free slots.
func (p *pool) take(used map[string]string) (Slot, bool) {
	best := ""
	for _, name := range p.names {
		if _, ok := used[name]; !ok && len(p.free[name]) > len(p.free[best]) {
			best = name
		}
	}
	if best == "" {
		return Slot{}, false
	}
	slot := Slot{best, p.free[best][0]}
	p.free[best] = p.free[best][1:]
	return slot, true
}
