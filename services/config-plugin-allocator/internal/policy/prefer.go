package policy

import (
	"slices"

	allocationv1 "akri.sh/proto/akri/allocation/v1"
)

// Prefer chooses size available ids for one container: mustInclude first, then free ids, then
// claimed ids. Allocate grants the chosen ids if any choice can be granted. Otherwise Prefer fills
// the choice up with other available ids, and the error of Allocate reports what is missing.
func Prefer(instances []*allocationv1.Instance, available, mustInclude []string, size int) ([]string, error) {
	if err := checkPrefer(available, mustInclude, size); err != nil {
		return nil, err
	}
	choice := &choice{
		claimed: claims(instances), withFree: withFreeSlot(instances),
		chosen: map[string]bool{}, used: map[string]bool{},
	}
	for _, id := range mustInclude {
		choice.add(id)
	}
	candidates := slices.SortedFunc(slices.Values(available), choice.compare)
	// The sets of ids that can be mapped to distinct Instances are a matroid, so adding each id
	// that fits, in any order, yields a largest set.
	for _, id := range candidates {
		if len(choice.ids) < size && !choice.chosen[id] && choice.fits(id) {
			choice.add(id)
		}
	}
	for _, id := range candidates {
		if len(choice.ids) < size && !choice.chosen[id] {
			choice.add(id)
		}
	}
	return choice.ids, nil
}

func checkPrefer(available, mustInclude []string, size int) error {
	if len(mustInclude) > size {
		return refuse(ErrInvalid, "%d virtual devices must be included in %d", len(mustInclude), size)
	}
	for _, id := range mustInclude {
		if !slices.Contains(available, id) {
			return refuse(ErrInvalid, "virtual device %q must be included and is not available", id)
		}
	}
	return nil
}

// choice is a growing set of ids.
type choice struct {
	claimed  map[string]*allocationv1.Allocation
	withFree []string
	ids      []string
	chosen   map[string]bool
	used     map[string]bool // Instances of the chosen claimed ids
	free     int             // number of chosen free ids
}

func (c *choice) add(id string) {
	c.ids = append(c.ids, id)
	c.chosen[id] = true
	if held := c.claimed[id]; held != nil {
		c.used[held.GetInstance()] = true
	} else {
		c.free++
	}
}

// fits reports whether the chosen ids and this id can be mapped to distinct Instances.
func (c *choice) fits(id string) bool {
	if held := c.claimed[id]; held != nil {
		return !c.used[held.GetInstance()] && c.free <= c.unused(held.GetInstance())
	}
	_, ok := number(id)
	return ok && c.free+1 <= c.unused("")
}

// unused returns the number of Instances with a free slot that no chosen claimed id uses, except
// the given Instance.
func (c *choice) unused(except string) int {
	count := 0
	for _, name := range c.withFree {
		if !c.used[name] && name != except {
			count++
		}
	}
	return count
}

// compare orders free ids before claimed ids.
func (c *choice) compare(a, b string) int {
	claimedA, claimedB := c.claimed[a] != nil, c.claimed[b] != nil
	switch {
	case claimedA == claimedB:
		return compareIDs(a, b)
	case claimedA:
		return 1
	default:
		return -1
	}
}
