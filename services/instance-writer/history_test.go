package instancewriter_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// historyCapacity is the capacity of each Instance in a history.
const historyCapacity = 3

// lateEffect is how long a call without an answer may still take effect. The server drops calls
// whose caller is gone, except for a running write.
const lateEffect = 3 * time.Second

// callOutcome is the outcome of a slotCall.
type callOutcome string

const (
	callDone    callOutcome = "done"
	callRefused callOutcome = "refused"
	callUnknown callOutcome = "unknown"
)

// slotCall reserves or releases slots of one Instance.
type slotCall struct {
	Instance, Node string
	Release        bool
	Slots          []int
}

// String describes the call in the visualization of a history.
func (c slotCall) String() string {
	verb := "reserve"
	if c.Release {
		verb = "release"
	}
	return fmt.Sprintf("%s %s %v of %s", c.Node, verb, c.Slots, c.Instance)
}

// callOnSlot is the effect of a call on one of its slots.
type callOnSlot struct {
	slot string
	slotCall
}

// observation is a holder that was read from the API server.
type observation struct {
	slot, holder string
}

// history records concurrent calls and checks whether they are linearizable: whether slots that
// change one call at a time could have given the same outcomes.
type history struct {
	mu         sync.Mutex
	operations []porcupine.Operation
	calls      int
}

// record adds a call that started at the given time and ends now. Each slot is checked separately,
// which keeps long histories decidable. The refusal of a call on several slots does not say which
// slot was held, so it is not recorded.
func (h *history) record(client int, call slotCall, started time.Time, outcome callOutcome) {
	ended := time.Now()
	if outcome == callUnknown {
		ended = ended.Add(lateEffect)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if outcome == callRefused && len(call.Slots) > 1 {
		return
	}
	for _, index := range call.Slots {
		h.operations = append(h.operations, porcupine.Operation{
			ClientId: client, Input: callOnSlot{historySlot(call.Instance, index), call}, Output: outcome,
			Call: started.UnixNano(), Return: ended.UnixNano(),
		})
	}
}

// observe adds the holder of a slot that was read between the given time and now.
func (h *history) observe(instance string, index int, holder string, started time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	input := observation{historySlot(instance, index), holder}
	h.operations = append(h.operations, porcupine.Operation{Input: input, Call: started.UnixNano(), Return: time.Now().UnixNano()})
}

func historySlot(instance string, index int) string { return fmt.Sprintf("%s-%d", instance, index) }

// check returns an error and writes a visualization to the file if the history is not linearizable.
func (h *history) check(timeout time.Duration, file string) error {
	model := slotModel()
	result, info := porcupine.CheckOperationsVerbose(model, h.operations, timeout)
	if result == porcupine.Ok {
		return nil
	}
	if err := porcupine.VisualizePath(model, info, file); err != nil {
		return fmt.Errorf("history of %d calls is %s; visualize: %w", len(h.operations), result, err)
	}
	return fmt.Errorf("history of %d calls is %s: see %s", len(h.operations), result, file)
}

func slotModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition:         partitionBySlot,
		Init:              func() []any { return []any{""} },
		Step:              func(state, input, output any) []any { return step(state.(string), input, output) },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v: %v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
	return model.ToModel()
}

func partitionBySlot(operations []porcupine.Operation) [][]porcupine.Operation {
	partitions := map[string][]porcupine.Operation{}
	for _, operation := range operations {
		slot := slotOf(operation.Input)
		partitions[slot] = append(partitions[slot], operation)
	}
	return slices.Collect(maps.Values(partitions))
}

func slotOf(input any) string {
	if observed, ok := input.(observation); ok {
		return observed.slot
	}
	return input.(callOnSlot).slot
}

// step returns the possible holders after the operation, or none if its outcome is impossible.
func step(holder string, input, output any) []any {
	if observed, ok := input.(observation); ok {
		return stateIf(observed.holder == holder, holder)
	}
	after, granted := applyCall(holder, input.(callOnSlot).slotCall)
	switch output.(callOutcome) {
	case callDone:
		return stateIf(granted, after)
	case callRefused:
		return stateIf(!granted, holder)
	default:
		return []any{holder, after}
	}
}

func stateIf(possible bool, state any) []any {
	if possible {
		return []any{state}
	}
	return nil
}

func applyCall(holder string, call slotCall) (after string, granted bool) {
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

func TestHistoryCheck(t *testing.T) {
	type recorded struct {
		slotCall
		outcome callOutcome
	}
	reserve := func(outcome callOutcome, node string, slots ...int) recorded {
		return recorded{slotCall{Instance: "cam-1", Node: node, Slots: slots}, outcome}
	}
	release := func(node string, slots ...int) recorded {
		return recorded{slotCall{Instance: "cam-1", Node: node, Slots: slots, Release: true}, callDone}
	}
	for name, c := range map[string]struct {
		calls []recorded
		valid bool
	}{
		"one after the other":            {[]recorded{reserve(callDone, "a", 0), release("a", 0), reserve(callDone, "b", 0)}, true},
		"reserved again by the holder":   {[]recorded{reserve(callDone, "a", 0), reserve(callDone, "a", 0, 1)}, true},
		"two holders of one slot":        {[]recorded{reserve(callDone, "a", 0), reserve(callDone, "b", 0)}, false},
		"free slot refused":              {[]recorded{reserve(callRefused, "a", 0)}, false},
		"refused call reserved a slot":   {[]recorded{reserve(callDone, "a", 0), reserve(callRefused, "b", 0, 1), reserve(callRefused, "a", 1)}, false},
		"refused call reserved no slot":  {[]recorded{reserve(callDone, "a", 0), reserve(callRefused, "b", 0, 1), reserve(callDone, "a", 1)}, true},
		"release by another node":        {[]recorded{reserve(callDone, "a", 0), release("b", 0), reserve(callDone, "b", 0)}, false},
		"call without answer succeeded":  {[]recorded{reserve(callUnknown, "a", 0), reserve(callRefused, "b", 0)}, true},
		"call without answer failed":     {[]recorded{reserve(callUnknown, "a", 0), reserve(callDone, "b", 0)}, true},
		"slot lost after other reserved": {[]recorded{reserve(callDone, "a", 0), reserve(callDone, "a", 1), reserve(callDone, "b", 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var h history
			for _, call := range c.calls {
				h.record(0, call.slotCall, time.Now(), call.outcome)
			}
			err := h.check(time.Minute, filepath.Join(t.TempDir(), "history.html"))
			require.Equal(t, c.valid, err == nil, "%v", err)
		})
	}
}
