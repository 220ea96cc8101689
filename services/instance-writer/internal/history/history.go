// Package history records calls on slots that run at the same time, and decides whether they can be
// explained by slots that change one call at a time: linearizability of a bounded counter with
// owners. It is for tests.
package history

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Capacity is that of each Instance of a history.
const Capacity = 3

// late is how long a call whose answer was lost may still take effect: the server stops when nobody
// waits any more, save for a write that is under way.
const late = 3 * time.Second

// Outcome of a call.
type Outcome string

// Outcomes.
const (
	Done    Outcome = "done"
	Held    Outcome = "held by another"
	Unknown Outcome = "unknown"
)

// Call is one request for slots of one Instance.
type Call struct {
	Instance, Node string
	Release        bool
	Slots          []int
}

// String is for people who look for what went wrong.
func (c Call) String() string {
	verb := "reserve"
	if c.Release {
		verb = "release"
	}
	return fmt.Sprintf("%s %s %v of %s", c.Node, verb, c.Slots, c.Instance)
}

// on is what a call does to one of its slots.
type on struct {
	slot string
	Call
}

// look is what a slot was seen to be.
type look struct {
	slot, holder string
}

// History of calls. Its zero value is empty.
type History struct {
	mu         sync.Mutex
	operations []porcupine.Operation
	calls      int
}

// Record adds a call that took from began to now. A slot is looked at alone, so that long histories
// can be decided: a call that was refused because of one of several slots says of each only that it
// did not take it.
func (h *History) Record(client int, call Call, began time.Time, outcome Outcome) {
	ended := time.Now()
	if outcome == Unknown {
		ended = ended.Add(late)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if outcome == Held && len(call.Slots) > 1 {
		return
	}
	for _, index := range call.Slots {
		h.operations = append(h.operations, porcupine.Operation{
			ClientId: client, Input: on{nameOf(call.Instance, index), call}, Call: began.UnixNano(), Output: outcome, Return: ended.UnixNano(),
		})
	}
}

// Look adds what a slot was seen to be between began and now.
func (h *History) Look(instance string, index int, holder string, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	input := look{nameOf(instance, index), holder}
	h.operations = append(h.operations, porcupine.Operation{Input: input, Call: began.UnixNano(), Return: time.Now().UnixNano()})
}

func nameOf(instance string, index int) string { return fmt.Sprintf("%s-%d", instance, index) }

// Len is the number of calls.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// Check decides, and draws the history into the file when it cannot be explained.
func (h *History) Check(within time.Duration, file string) error {
	model := model()
	result, info := porcupine.CheckOperationsVerbose(model, h.operations, within)
	if result == porcupine.Ok {
		return nil
	}
	if err := porcupine.VisualizePath(model, info, file); err != nil {
		return fmt.Errorf("history of %d calls is %s, and drawing it failed: %w", len(h.operations), result, err)
	}
	return fmt.Errorf("history of %d calls is %s: see %s", len(h.operations), result, file)
}

func model() porcupine.Model {
	slots := porcupine.NondeterministicModel{
		Partition:         bySlot,
		Init:              func() []any { return []any{""} },
		Step:              func(state, input, output any) []any { return step(state.(string), input, output) },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v: %v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
	return slots.ToModel()
}

func bySlot(history []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, operation := range history {
		slot := slotOf(operation.Input)
		parts[slot] = append(parts[slot], operation)
	}
	return slices.Collect(maps.Values(parts))
}

func slotOf(input any) string {
	if seen, ok := input.(look); ok {
		return seen.slot
	}
	return input.(on).slot
}

// step returns who may hold the slot after the operation; nothing when it could not have ended so.
func step(holder string, input, output any) []any {
	if seen, ok := input.(look); ok {
		return only(seen.holder == holder, holder)
	}
	call := input.(on)
	after, granted := apply(holder, call.Call)
	switch output.(Outcome) {
	case Done:
		return only(granted, after)
	case Held:
		return only(!granted, holder)
	default:
		return []any{holder, after}
	}
}

func only(possible bool, state any) []any {
	if possible {
		return []any{state}
	}
	return nil
}

func apply(holder string, call Call) (after string, granted bool) {
	switch {
	case call.Release && holder == call.Node:
		return "", true
	case call.Release:
		return holder, true
	case holder == "" || holder == call.Node:
		return call.Node, true
	default:
		return holder, false
	}
}
