package policy

import (
	"fmt"
	"slices"
)

// Prefer chooses size of the available ids for one container such that Allocate will grant them where that is possible:
// mustInclude first, then ids that are free, then claimed ones. Where it is not possible the choice is filled up with
// what there is, and Allocate will say what is missing.
func Prefer(instances []Instance, available, mustInclude []string, size int) ([]string, error) {
	if err := checkPrefer(available, mustInclude, size); err != nil {
		return nil, err
	}
	choice := &choice{claimed: claims(instances), withFree: withFreeSlot(instances), taken: map[string]bool{}, chosen: map[string]bool{}}
	for _, id := range mustInclude {
		choice.add(id)
	}
	candidates := slices.SortedFunc(slices.Values(available), choice.compare)
	// Sets of ids that can be matched to distinct Instances are a matroid: taking whatever still fits, in any order,
	// ends with the largest.
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
		return fmt.Errorf("%w: %d virtual devices must be among %d", ErrInvalid, len(mustInclude), size)
	}
	for _, id := range mustInclude {
		if !slices.Contains(available, id) {
			return fmt.Errorf("%w: virtual device %q must be included and is not available", ErrInvalid, id)
		}
	}
	return nil
}

// choice is a growing set of ids.
type choice struct {
	claimed  map[string]Slot
	withFree []string
	ids      []string
	chosen   map[string]bool
	taken    map[string]bool // Instances of the chosen ids that are claimed
	fresh    int             // chosen ids that are not claimed
}

func (c *choice) add(id string) {
	c.ids = append(c.ids, id)
	c.chosen[id] = true
	if slot, ok := c.claimed[id]; ok {
		c.taken[slot.Instance] = true
	} else {
		c.fresh++
	}
}

// fits reports whether the chosen ids and this one can all have Instances of their own.
func (c *choice) fits(id string) bool {
	if slot, ok := c.claimed[id]; ok {
		return !c.taken[slot.Instance] && c.fresh <= c.unclaimed(slot.Instance)
	}
	_, ok := number(id)
	return ok && c.fresh+1 <= c.unclaimed("")
}

// unclaimed counts the Instances with a free slot that no chosen claimed id has, nor the one given.
func (c *choice) unclaimed(without string) int {
	count := 0
	for _, name := range c.withFree {
		if !c.taken[name] && name != without {
			count++
		}
	}
	return count
}

func (c *choice) compare(a, b string) int {
	claimedA, claimedB := has(c.claimed, a), has(c.claimed, b)
	switch {
	case claimedA == claimedB:
		return compareIDs(a, b)
	case claimedA:
		return 1
	default:
		return -1
	}
}
