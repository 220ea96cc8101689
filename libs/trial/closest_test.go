package trial_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/trial"
)

func devices(first, last string, count int, nodes ...string) trial.Devices {
	return trial.Devices{Nodes: nodes, First: first, Series: []trial.Series{{First: first, Last: last, Count: count}}, Count: count}
}

func TestText(t *testing.T) {
	nodes := []string{"a", "b", "c", "d", "e", "f", "g"}
	for want, group := range map[string]trial.Group{
		`/dev/null (mem) on a, b: S, K matched, D did not: it is "/dev/null"`: {
			Kind: "mem", Met: []string{"S", "K"}, Mismatches: []trial.Mismatch{{Condition: "D", Found: []string{"/dev/null"}}},
			Devices: []trial.Devices{devices("/dev/null", "", 1, "a", "b")},
		},
		`zram0 to zram3 on a: K did not match: it is "zram0", "zram1"; T did not: the devices have none`: {
			Mismatches: []trial.Mismatch{{Condition: "K", Found: []string{"zram0", "zram1"}}, {Condition: "T"}},
			Devices:    []trial.Devices{devices("zram0", "zram3", 4, "a")},
		},
		`x, y0 to y1 and 5 more on a; x on b: K did not match: the devices have none`: {
			Mismatches: []trial.Mismatch{{Condition: "K"}},
			Devices: []trial.Devices{
				{Nodes: nodes[:1], First: "x", Series: []trial.Series{{First: "x", Count: 1}, {First: "y0", Last: "y1", Count: 2}}, Count: 8},
				devices("x", "", 1, "b"),
			},
		},
		`x on a, b, c, d, e and 2 more: K did not match: the device has none`: {
			Mismatches: []trial.Mismatch{{Condition: "K"}}, Devices: []trial.Devices{devices("x", "", 1, nodes...)},
		},
		`a; b; c and 1 more: K did not match: it is "\x1b"`: {
			Mismatches: []trial.Mismatch{{Condition: "K", Found: []string{"\x1b"}}},
			Devices:    []trial.Devices{devices("a", "", 1), devices("b", "", 1), devices("c", "", 1), devices("d", "", 1)},
		},
	} {
		require.Equal(t, want, group.String())
	}
}

// Nodes with the same devices share a place, and the closest values come first.
func TestMerge(t *testing.T) {
	group := func(distance int, found []string, d trial.Devices) trial.Group {
		return trial.Group{Kind: "block", Distance: distance, Mismatches: []trial.Mismatch{{Condition: "K", Found: found}}, Devices: []trial.Devices{d}}
	}
	g := group(2, []string{"1", "2"}, devices("x", "", 1, "a"))
	for _, other := range []trial.Group{
		group(2, []string{"2", "3", "4"}, devices("x", "", 1, "b")), group(1, []string{"5"}, devices("y", "", 1, "c")),
	} {
		require.True(t, g.Same(other))
		g.Merge(other)
	}
	want := group(1, []string{"5", "1", "2"}, devices("x", "", 1, "a", "b"))
	want.Devices = append(want.Devices, devices("y", "", 1, "c"))
	require.Equal(t, want, g)

	for _, different := range []trial.Group{
		{Kind: "tty", Mismatches: g.Mismatches}, {Kind: "block", Mismatches: []trial.Mismatch{{Condition: "L"}}},
		{Kind: "block", Mismatches: g.Mismatches, Met: []string{"M"}},
	} {
		require.False(t, g.Same(different), different)
	}
}

func TestMergedCorrection(t *testing.T) {
	for _, test := range []struct {
		a, b trial.Group
		want string
	}{
		{trial.Group{CorrectedDetails: "K"}, trial.Group{CorrectedDetails: "K"}, "K"},
		{trial.Group{CorrectedDetails: "K"}, trial.Group{CorrectedDetails: "K, S"}, "K, S"},           // b has another kind
		{trial.Group{CorrectedDetails: "K"}, trial.Group{}, ""},                                       // that S does not exclude
		{trial.Group{CorrectedDetails: "K0"}, trial.Group{CorrectedDetails: "K1", Distance: 1}, "K0"}, // b has not K0
		{trial.Group{CorrectedDetails: "K0"}, trial.Group{Distance: 1}, "K0"},
	} {
		for _, pair := range [][2]trial.Group{{test.a, test.b}, {test.b, test.a}} {
			pair[0].Merge(pair[1])
			require.Equal(t, test.want, pair[0].CorrectedDetails)
		}
	}
}

func TestCorrection(t *testing.T) {
	require.Nil(t, trial.Correction([]trial.Group{{Kind: "a"}}))
	require.Equal(t, "b", trial.Correction([]trial.Group{{Kind: "a"}, {Kind: "b", CorrectedDetails: "d"}}).Kind)
}
