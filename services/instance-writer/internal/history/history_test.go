package history_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/services/instance-writer/internal/history"
)

type took struct {
	history.Call
	outcome history.Outcome
}

func reserve(node string, slots ...int) history.Call {
	return history.Call{Instance: "cam-1", Node: node, Slots: slots}
}

func release(node string, slots ...int) history.Call {
	return history.Call{Instance: "cam-1", Node: node, Slots: slots, Release: true}
}

func TestCheckTellsWhatSlotsCannotDo(t *testing.T) {
	for title, c := range map[string]struct {
		calls []took
		right bool
	}{
		"one after the other":             {[]took{{reserve("a", 0), history.Done}, {release("a", 0), history.Done}, {reserve("b", 0), history.Done}}, true},
		"again by the holder":             {[]took{{reserve("a", 0), history.Done}, {reserve("a", 0, 1), history.Done}}, true},
		"two holders of one slot":         {[]took{{reserve("a", 0), history.Done}, {reserve("b", 0), history.Done}}, false},
		"refused though free":             {[]took{{reserve("a", 0), history.Held}}, false},
		"half of a call":                  {[]took{{reserve("a", 0), history.Done}, {reserve("b", 0, 1), history.Held}, {reserve("a", 1), history.Held}}, false},
		"one of several":                  {[]took{{reserve("a", 0), history.Done}, {reserve("b", 0, 1), history.Held}, {reserve("a", 1), history.Done}}, true},
		"release of another's slot":       {[]took{{reserve("a", 0), history.Done}, {release("b", 0), history.Done}, {reserve("b", 0), history.Done}}, false},
		"a lost answer that was a yes":    {[]took{{reserve("a", 0), history.Unknown}, {reserve("b", 0), history.Held}}, true},
		"a lost answer that was a no":     {[]took{{reserve("a", 0), history.Unknown}, {reserve("b", 0), history.Done}}, true},
		"a slot that is lost by a silent": {[]took{{reserve("a", 0), history.Done}, {reserve("a", 1), history.Done}, {reserve("b", 0), history.Done}}, false},
	} {
		t.Run(title, func(t *testing.T) {
			var h history.History
			for _, call := range c.calls {
				h.Record(0, call.Call, time.Now(), call.outcome)
			}
			err := h.Check(time.Minute, filepath.Join(t.TempDir(), "history.html"))
			require.Equal(t, c.right, err == nil, "%v", err)
		})
	}
}
