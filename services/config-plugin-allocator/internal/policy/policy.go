// Package policy implements the policy of Configuration-level resources: which virtual devices a
// node advertises, which slot each of them gets, and which of them the kubelet should prefer. All
// functions are pure and deterministic. The rules are those of the proposal "Configuration-level
// resources", whose worked examples are test cases.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

var (
	// ErrInvalid is the error of a request that is invalid in any state.
	ErrInvalid = errors.New("invalid request")
	// ErrExhausted is the error of a valid request for which this state has not enough slots.
	ErrExhausted = errors.New("not enough devices")
)

// Slot is a slot of an Instance.
type Slot struct {
	Instance string
	Index    uint32
}

// Instance is the state of an Instance on the node.
type Instance struct {
	Name string
	// Free has the slots without a holder.
	Free []uint32
	// Claimed has the slots that this node holds through the Configuration-level resource.
	Claimed []Claim
}

// Claim is a slot that a virtual id holds.
type Claim struct {
	VirtualID string
	Index     uint32
}

// Allocation assigns a slot to a virtual id.
type Allocation struct {
	VirtualID string
	Slot      Slot
	// Reserve is false if the id already holds the slot.
	Reserve bool
}

// List returns the virtual ids to advertise: all claimed ids, and one free id for each Instance
// with a free slot. Free ids are the lowest numbers that are not claimed.
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

// claims returns the slot of each claimed id. If an id holds several slots, it returns the first.
// That happens for a short time after the response to a reservation was lost, and no container uses
// the other slots.
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

// withFreeSlot returns the names of the Instances with a free slot.
func withFreeSlot(instances []Instance) []string {
	var names []string
	for _, instance := range instances {
		if len(instance.Free) > 0 {
			names = append(names, instance.Name)
		}
	}
	return names
}

// compareIDs orders numbers by value, before all other ids.
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

// number parses an id that can be free: a decimal number without leading zeros.
func number(id string) (uint64, bool) {
	n, err := strconv.ParseUint(id, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == id
}

// slotOf returns the slot that the id holds, or nil if the id is free.
func slotOf(claimed map[string]Slot, id string) (*Slot, error) {
	if slot, ok := claimed[id]; ok {
		return &slot, nil
	}
	if _, ok := number(id); !ok {
		return nil, fmt.Errorf("%w: virtual device %q does not exist: its id must be claimed or a number", ErrInvalid, id)
	}
	return nil, nil
}
