package policy

import (
	"fmt"
	"slices"
)

// Allocate maps the virtual ids of each container to slots, in the order of the request. A container never gets one
// Instance twice; two containers may share one as far as its free slots go.
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
				return fmt.Errorf("%w: virtual device %q is asked for twice", ErrInvalid, id)
			}
			seen[id] = true
		}
	}
	return nil
}

// pool holds the free slots of each Instance, ascending; Instances are in the order of their names.
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
	taken := map[string]string{} // Instance → the id that has it
	var fresh []int
	for i, id := range ids {
		slot, err := slotOf(claimed, id)
		if err != nil {
			return nil, err
		}
		if slot == nil {
			fresh = append(fresh, i)
			continue
		}
		if other, ok := taken[slot.Instance]; ok {
			return nil, fmt.Errorf("%w: virtual devices %q and %q are both slots of Instance %s, and a container gets an Instance only once",
				ErrExhausted, other, id, slot.Instance)
		}
		taken[slot.Instance] = id
		result[i] = Allocation{VirtualID: id, Slot: *slot}
	}
	for _, i := range fresh {
		slot, ok := free.take(taken)
		if !ok {
			return nil, fmt.Errorf("%w: a container asks for %d different device(s) and only %d can be had here", ErrExhausted, len(ids), len(taken))
		}
		taken[slot.Instance] = ids[i]
		result[i] = Allocation{VirtualID: ids[i], Slot: slot, Reserve: true}
	}
	return result, nil
}

// take removes and returns the lowest slot of the Instance with most free slots that is not taken.
func (p *pool) take(taken map[string]string) (Slot, bool) {
	best := ""
	for _, name := range p.names {
		if _, ok := taken[name]; !ok && len(p.free[name]) > len(p.free[best]) {
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
