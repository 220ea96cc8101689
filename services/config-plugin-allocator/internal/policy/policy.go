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

	allocationv1 "akri.sh/proto/akri/allocation/v1"
)

var (
	// ErrInvalid is the error of a request that is invalid in any state.
	ErrInvalid = errors.New("invalid request")
	// ErrExhausted is the error of a valid request for which this state has not enough slots.
	ErrExhausted = errors.New("not enough devices")
)

// refusal is the error of a request. Users read its text in `kubectl describe pod`, so the kind is
// no part of it.
type refusal struct {
	kind error
	text string
}

func (r refusal) Error() string { return r.text }

func (r refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return refusal{kind, fmt.Sprintf(format, args...)}
}

// List returns the virtual ids to advertise: all claimed ids, and one free id for each Instance
// with a free slot. Free ids are the lowest numbers that are not claimed.
func List(instances []*allocationv1.Instance) []string {
	claimed := claims(instances)
	ids := make([]string, 0, len(claimed)+len(instances))
	for id := range claimed {
		ids = append(ids, id)
	}
	next := 0
	for range withFreeSlot(instances) {
		for claimed[strconv.Itoa(next)] != nil {
			next++
		}
		ids = append(ids, strconv.Itoa(next))
		next++
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

// claims returns the allocation of each claimed id. If an id holds several slots, it returns the
// first. That happens for a short time after the response to a reservation was lost, and no
// container uses the other slots.
func claims(instances []*allocationv1.Instance) map[string]*allocationv1.Allocation {
	claimed := map[string]*allocationv1.Allocation{}
	for _, instance := range instances {
		for _, slot := range instance.GetClaimedSlots() {
			id := slot.GetVirtualId()
			claim := &allocationv1.Allocation{VirtualId: id, Instance: instance.GetName(), Index: slot.GetIndex()}
			if claimed[id] == nil || compareSlots(claim, claimed[id]) < 0 {
				claimed[id] = claim
			}
		}
	}
	return claimed
}

func compareSlots(a, b *allocationv1.Allocation) int {
	return cmp.Or(cmp.Compare(a.GetInstance(), b.GetInstance()), cmp.Compare(a.GetIndex(), b.GetIndex()))
}

// withFreeSlot returns the names of the Instances with a free slot.
func withFreeSlot(instances []*allocationv1.Instance) []string {
	var names []string
	for _, instance := range instances {
		if len(instance.GetFreeSlots()) > 0 {
			names = append(names, instance.GetName())
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
