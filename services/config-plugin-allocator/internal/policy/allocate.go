package policy

import (
	"slices"

	allocationv1 "akri.sh/proto/akri/allocation/v1"
)

// Allocate maps the virtual ids of each container to slots, in the order of the request. The slots
// of one container belong to different Instances. Containers may share an Instance while it has
// free slots.
func Allocate(
	instances []*allocationv1.Instance, containers []*allocationv1.ContainerRequest,
) ([]*allocationv1.ContainerAllocation, error) {
	if err := checkDistinct(containers); err != nil {
		return nil, err
	}
	claimed := claims(instances)
	free := freeSlots(instances)
	result := make([]*allocationv1.ContainerAllocation, 0, len(containers))
	for _, container := range containers {
		allocations, err := allocateContainer(claimed, free, container.GetVirtualIds())
		if err != nil {
			return nil, err
		}
		result = append(result, &allocationv1.ContainerAllocation{Allocations: allocations})
	}
	return result, nil
}

func checkDistinct(containers []*allocationv1.ContainerRequest) error {
	seen := map[string]bool{}
	for _, container := range containers {
		for _, id := range container.GetVirtualIds() {
			if seen[id] {
				return refuse(ErrInvalid, "virtual device %q is requested twice", id)
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

func freeSlots(instances []*allocationv1.Instance) *pool {
	p := &pool{names: withFreeSlot(instances), free: map[string][]uint32{}}
	slices.Sort(p.names)
	for _, instance := range instances {
		p.free[instance.GetName()] = slices.Sorted(slices.Values(instance.GetFreeSlots()))
	}
	return p
}

func allocateContainer(claimed map[string]*allocationv1.Allocation, free *pool, ids []string) ([]*allocationv1.Allocation, error) {
	result := make([]*allocationv1.Allocation, len(ids))
	used := map[string]string{} // Instance → id
	for i, id := range ids {
		held := claimed[id]
		if held == nil {
			if _, ok := number(id); !ok {
				return nil, refuse(ErrInvalid, "virtual device %q does not exist: its id must be claimed or a number", id)
			}
			continue
		}
		if other, ok := used[held.GetInstance()]; ok {
			return nil, refuse(ErrExhausted, "virtual devices %q and %q are slots of the same Instance %s, a container can use only one of them",
				other, id, held.GetInstance())
		}
		used[held.GetInstance()] = id
		result[i] = held
	}
	for i, id := range ids {
		if result[i] != nil {
			continue
		}
		if result[i] = free.take(id, used); result[i] == nil {
			return nil, refuse(ErrExhausted, "not enough distinct devices on this node: %d requested by a container, %d available",
				len(ids), len(used))
		}
		used[result[i].GetInstance()] = id
	}
	return result, nil
}

// take allocates the lowest free slot of the unused Instance with most free slots. It returns nil
// if there is none.
func (p *pool) take(id string, used map[string]string) *allocationv1.Allocation {
	best := ""
	for _, name := range p.names {
		if _, ok := used[name]; !ok && len(p.free[name]) > len(p.free[best]) {
			best = name
		}
	}
	if best == "" {
		return nil
	}
	lowest := p.free[best][0]
	p.free[best] = p.free[best][1:]
	return &allocationv1.Allocation{VirtualId: id, Instance: best, Index: lowest, Reserve: true}
}
