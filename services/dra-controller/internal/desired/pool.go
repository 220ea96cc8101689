package desired

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Change is a write to a ResourceSlice: a creation without Current, a deletion without Wanted.
type Change struct{ Current, Wanted *resourcev1.ResourceSlice }

// SliceName returns the name of a ResourceSlice of a pool. Two pools have no name in common.
func SliceName(pool string, index int) string {
	return slicePrefix(pool) + strconv.Itoa(index) + "." + akriv0.Group
}

func slicePrefix(pool string) string { return strings.ReplaceAll(pool, "/", ".") + "." }

// Changes returns the writes, in order, after which the slices of the pool have exactly the offers.
// The devices of a slice have the same nodes.
//
// Consumers use the slices of a pool with the highest generation, and only if they are as many as
// each of them states. Another slice therefore needs a new generation, which is a write to each
// slice, and no Pod gets a device of the pool until the last one. All other changes keep the
// generation. So that new generations are rare, a slice without devices stays for the next set of
// nodes, and a pool with several sets of nodes gets spare slices when it grows.
func (f Features) Changes(
	pool string, current []*resourcev1.ResourceSlice, offers []Offer, owner metav1.OwnerReference,
) (changes []Change) {
	own, others := split(pool, current)
	if len(offers) == 0 {
		others = append(others, own...)
		own = nil
	}
	for _, slice := range others {
		changes = append(changes, Change{Current: slice})
	}
	if len(offers) == 0 {
		return changes
	}

	all := f.place(own, offers)
	generation, isIntact := version(own)
	if !isIntact || len(all) > len(own) {
		generation++
		for range len(byNodes(all)) - 1 {
			all = append(all, &placed{nodes: all[0].nodes})
		}
	}

	names := unusedNames(pool, own)
	for _, slice := range all {
		slice.wanted = slice.resourceSlice(pool, generation, int64(len(all)), owner)
		if slice.current == nil {
			slice.wanted.Name = names()
		}
	}
	return append(changes, ordered(all)...)
}

// split returns the slices of the pool that Changes has made, in the order of their numbers, and
// those that others have made.
func split(pool string, current []*resourcev1.ResourceSlice) (own, others []*resourcev1.ResourceSlice) {
	for _, slice := range current {
		if number(pool, slice.Name) >= 0 && slice.Spec.NodeSelector != nil && nodesOf(slice.Spec.NodeSelector) != "" {
			own = append(own, slice)
		} else {
			others = append(others, slice)
		}
	}
	slices.SortFunc(own, func(a, b *resourcev1.ResourceSlice) int {
		return cmp.Compare(number(pool, a.Name), number(pool, b.Name))
	})
	return own, others
}

// number returns the number in the name of a slice of the pool, or -1 if SliceName does not return
// the name.
func number(pool, name string) int {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, slicePrefix(pool)), "."+akriv0.Group)
	number, err := strconv.Atoi(digits)
	if err != nil || number < 0 || SliceName(pool, number) != name {
		return -1
	}
	return number
}

func unusedNames(pool string, own []*resourcev1.ResourceSlice) (next func() string) {
	used := sets.New[string]()
	for _, slice := range own {
		used.Insert(slice.Name)
	}
	index := 0
	return func() string {
		for used.Has(SliceName(pool, index)) {
			index++
		}
		index++
		return SliceName(pool, index-1)
	}
}

// version returns the highest generation of the slices, and whether they are a pool that consumers
// use.
func version(own []*resourcev1.ResourceSlice) (generation int64, isIntact bool) {
	for _, slice := range own {
		generation = max(generation, slice.Spec.Pool.Generation)
	}
	return generation, len(own) > 0 && !slices.ContainsFunc(own, func(slice *resourcev1.ResourceSlice) bool {
		return slice.Spec.Pool.Generation != generation || slice.Spec.Pool.ResourceSliceCount != int64(len(own))
	})
}

// placed is a slice and the devices that it gets.
type placed struct {
	current, wanted *resourcev1.ResourceSlice
	nodes           Nodes
	devices         []resourcev1.Device
}

// place puts each offer into a slice with its nodes. A device stays where it is if it can. If all
// devices of a slice have other nodes now, the slice gets those of most of them.
func (f Features) place(own []*resourcev1.ResourceSlice, offers []Offer) []*placed {
	unplaced := map[string]Offer{}
	for _, offer := range offers {
		unplaced[offer.Name] = offer
	}
	var all []*placed
	for _, current := range own {
		slice := &placed{current: current, nodes: nodesOf(current.Spec.NodeSelector)}
		slice.keep(unplaced)
		all = append(all, slice)
	}

	for _, offer := range offers {
		if _, exists := unplaced[offer.Name]; !exists {
			continue
		}
		index := slices.IndexFunc(all, func(slice *placed) bool {
			return slice.nodes == offer.Nodes && len(slice.devices) < f.maxDevices()
		})
		if index < 0 {
			index = slices.IndexFunc(all, func(slice *placed) bool { return len(slice.devices) == 0 })
		}
		if index < 0 {
			index, all = len(all), append(all, &placed{})
		}
		all[index].nodes = offer.Nodes
		all[index].devices = append(all[index].devices, offer.Device)
	}
	return all
}

// keep moves the offers that stay in the slice out of the unplaced ones.
func (p *placed) keep(unplaced map[string]Offer) {
	count := map[Nodes]int{}
	for _, device := range p.current.Spec.Devices {
		if offer, exists := unplaced[device.Name]; exists {
			count[offer.Nodes]++
		}
	}
	if len(count) > 0 && count[p.nodes] == 0 {
		p.nodes = slices.MaxFunc(slices.Collect(maps.Keys(count)), func(a, b Nodes) int {
			return cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(a, b))
		})
	}

	for _, device := range p.current.Spec.Devices {
		if offer, exists := unplaced[device.Name]; exists && offer.Nodes == p.nodes {
			p.devices = append(p.devices, offer.Device)
			delete(unplaced, device.Name)
		}
	}
}

func byNodes(all []*placed) map[Nodes]bool {
	found := map[Nodes]bool{}
	for _, slice := range all {
		found[slice.nodes] = true
	}
	return found
}

func (p *placed) resourceSlice(pool string, generation, count int64, owner metav1.OwnerReference) *resourcev1.ResourceSlice {
	slices.SortFunc(p.devices, func(a, b resourcev1.Device) int { return cmp.Compare(a.Name, b.Name) })
	wanted := &resourcev1.ResourceSlice{
		ObjectMeta: objectMeta("", owner),
		Spec: resourcev1.ResourceSliceSpec{
			Driver:       akriv0.Driver,
			Pool:         resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count},
			NodeSelector: p.nodes.selector(),
			Devices:      p.devices,
		},
	}
	if p.current != nil {
		wanted.Name, wanted.Annotations = p.current.Name, p.current.Annotations
	}
	return wanted
}

func (p *placed) isCurrent() bool {
	return p.current != nil && p.current.Labels[LabelManagedBy] == ManagedBy &&
		equality.Semantic.DeepEqual(p.current.OwnerReferences, p.wanted.OwnerReferences) &&
		equality.Semantic.DeepEqual(p.current.Spec, p.wanted.Spec)
}

// ordered returns the writes to the slices. A device that moves is removed from its slice before
// another one gets it, because a pool that has a device twice in one generation is invalid.
func ordered(all []*placed) []Change {
	from, to := map[string]*placed{}, map[string]*placed{} // by device
	for _, slice := range all {
		for _, device := range slice.published() {
			from[device.Name] = slice
		}
		for _, device := range slice.devices {
			to[device.Name] = slice
		}
	}
	leaves := func(device resourcev1.Device) bool {
		return to[device.Name] != nil && to[device.Name] != from[device.Name]
	}
	arrives := func(device resourcev1.Device) bool {
		return from[device.Name] != nil && to[device.Name] != from[device.Name]
	}

	var first, last []Change
	for _, slice := range all {
		switch {
		case slice.isCurrent():
		case slice.current == nil || !slices.ContainsFunc(slice.published(), leaves):
			last = append(last, Change{slice.current, slice.wanted})
		case !slices.ContainsFunc(slice.devices, arrives):
			first = append(first, Change{slice.current, slice.wanted})
		default:
			remaining := slice.current.DeepCopy()
			remaining.Spec.Devices = slices.DeleteFunc(remaining.Spec.Devices, leaves)
			first = append(first, Change{slice.current, remaining})
			last = append(last, Change{slice.current, slice.wanted})
		}
	}
	return append(first, last...)
}

// published returns the devices that the slice has now.
func (p *placed) published() []resourcev1.Device {
	if p.current == nil {
		return nil
	}
	return p.current.Spec.Devices
}
