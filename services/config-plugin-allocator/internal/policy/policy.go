// Package policy decides about Configuration-level resources: which virtual devices a node shows, which slot each of
// them gets, and which the kubelet had best choose. All of it is pure and deterministic. The rules are those of the
// proposal "Configuration-level resources"; its worked examples are the tests.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// The kinds of refusal.
var (
	// ErrInvalid is a request that no state could satisfy.
	ErrInvalid = errors.New("invalid request")
	// ErrExhausted is a request that this state cannot satisfy.
	ErrExhausted = errors.New("not enough devices")
)

// Slot is one place on an Instance.
type Slot struct {
	Instance string
	Index    uint32
}

// Instance is what the node knows of one.
type Instance struct {
	Name string
	// Free are the slots that nobody holds.
	Free []uint32
	// Claimed are the slots that this node holds through the Configuration-level resource, by virtual id.
	Claimed []Claim
}

// Claim is a slot that a virtual id has.
type Claim struct {
	VirtualID string
	Index     uint32
}

// Allocation is the slot that a virtual id gets.
type Allocation struct {
	VirtualID string
	Slot      Slot
	// Reserve is false for a slot that the id had already.
	Reserve bool
}

// List returns the virtual ids to show: all that are claimed and, for each Instance with a free slot, one more: the
// lowest numbers that are not claimed.
func List(instances []Instance) []string {
	claimed := claims(instances)
	ids := make([]string, 0, len(claimed)+len(instances))
	for id := range claimed {
		ids = append(ids, id)
	}
	next := 0
	for range withFreeSlot(instances) {
		for has(claimed, strconv.Itoa(next)) {
			next++
		}
		ids = append(ids, strconv.Itoa(next))
		next++
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

// claims maps each claimed id to its slot. Of several, which a reservation of unknown outcome can leave behind for a moment,
// it is the first; nobody uses the others.
func claims(instances []Instance) map[string]Slot {
	claimed := map[string]Slot{}
	for _, instance := range instances {
		for _, claim := range instance.Claimed {
			slot := Slot{instance.Name, claim.Index}
			if other, ok := claimed[claim.VirtualID]; !ok || slot.compare(other) < 0 {
				claimed[claim.VirtualID] = slot
			}
		}
	}
	return claimed
}

func has(claimed map[string]Slot, id string) bool {
	_, ok := claimed[id]
	return ok
}

func (s Slot) compare(other Slot) int {
	return cmp.Or(cmp.Compare(s.Instance, other.Instance), cmp.Compare(s.Index, other.Index))
}

func withFreeSlot(instances []Instance) []string {
	var names []string
	for _, instance := range instances {
		if len(instance.Free) > 0 {
			names = append(names, instance.Name)
		}
	}
	return names
}

// compareIDs puts numbers first, by value, and everything else after them, by text.
func compareIDs(a, b string) int {
	numberA, okA := number(a)
	numberB, okB := number(b)
	switch {
	case okA && okB:
		return cmp.Compare(numberA, numberB)
	case okA:
		return -1
	case okB:
		return 1
	default:
		return cmp.Compare(a, b)
	}
}

// number reads a virtual id that may be free: decimal digits without leading zeros.
func number(id string) (uint64, bool) {
	n, err := strconv.ParseUint(id, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == id
}

// slotOf returns the slot that the id has claimed, or nil for an id that is free.
func slotOf(claimed map[string]Slot, id string) (*Slot, error) {
	if slot, ok := claimed[id]; ok {
		return &slot, nil
	}
	if _, ok := number(id); !ok {
		return nil, fmt.Errorf("%w: virtual device %q is not known: want a number", ErrInvalid, id)
	}
	return nil, nil
}
