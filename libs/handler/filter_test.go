package handler_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler"
	"akri.sh/libs/typo"
)

func TestMissOf(t *testing.T) {
	const text = "names: {items: [plc-1, press]}\nzones: {action: Exclude, items: [lab]}\n"
	names := handler.Filter{Name: "names", Items: []string{"plc-1", "press"}}
	zones := handler.Filter{Name: "zones", Items: []string{"lab"}, Exclude: true}
	with := func(f handler.Filter, matches bool, values ...string) handler.Filter {
		f.Values, f.Matches = values, matches
		return f
	}
	for name, test := range map[string]struct {
		filters           []handler.Filter
		met               []string
		condition, wanted string
		found             []string
		distance          int
		corrected         string
	}{
		"similar": {
			[]handler.Filter{with(names, false, "pres"), with(zones, true, "hall")}, []string{`zones: Exclude ["lab"]`},
			`names: Include ["plc-1", "press"]`, "press", []string{"pres"}, 1, "names: {items: [plc-1, pres]}\nzones: {action: Exclude, items: [lab]}\n",
		},
		"one of several values": {
			[]handler.Filter{with(names, false, "x", "PLC-1")}, nil,
			`names: Include ["plc-1", "press"]`, "plc-1", []string{"PLC-1", "x"}, 1, "names: {items: [PLC-1, press]}\nzones: {action: Exclude, items: [lab]}\n",
		},
		"not similar":  {[]handler.Filter{with(names, false, "robot")}, nil, `names: Include ["plc-1", "press"]`, "plc-1", []string{"robot"}, typo.Far + 100, ""},
		"no value":     {[]handler.Filter{with(names, false)}, nil, `names: Include ["plc-1", "press"]`, "", nil, typo.Absent, ""},
		"excluded":     {[]handler.Filter{with(zones, false, "lab")}, nil, `zones: Exclude ["lab"]`, "lab", []string{"lab"}, 1, ""},
		"empty filter": {[]handler.Filter{{Name: "names", Values: []string{"a"}}}, nil, "names: Include []", "", []string{"a"}, 2 * typo.Far, ""},
		"refused":      {[]handler.Filter{with(names, false, "presS")}, nil, `names: Include ["plc-1", "press"]`, "press", []string{"presS"}, 1, ""},
		"other details": {[]handler.Filter{with(handler.Filter{Name: "none", Items: []string{"press"}}, false, "pres")}, nil,
			`none: Include ["press"]`, "press", []string{"pres"}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			miss := handler.MissOf("device", text, test.filters, func(details string) bool {
				require.NotEqual(t, text, details)
				return name != "refused"
			})
			require.Equal(t, "device", miss.GetDevice())
			require.Equal(t, test.met, miss.GetMet())
			mismatch := miss.GetMismatches()[0]
			require.Equal(t, test.condition, mismatch.GetCondition())
			require.Equal(t, test.wanted, mismatch.GetWanted())
			require.Equal(t, test.found, mismatch.GetFound())
			require.EqualValues(t, test.distance, miss.GetDistance())
			require.Equal(t, test.corrected, miss.GetCorrectedDetails())
		})
	}
}

func TestFilterWithManyItems(t *testing.T) {
	var items []string
	for i := range 1000 {
		items = append(items, fmt.Sprint("item", i))
	}
	f := handler.Filter{Name: "names", Items: items, Values: items}
	require.Equal(t, `names: Include ["item0", "item1", "item2" and 997 more]`, f.String())
	miss := handler.MissOf("device", "", []handler.Filter{f}, nil)
	require.Len(t, miss.GetMismatches()[0].GetFound(), 64) // the server limits it further
}
