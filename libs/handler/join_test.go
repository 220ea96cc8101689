package handler_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"akri.sh/libs/handler"
	"akri.sh/libs/typo"
)

// near returns the near miss of one device.
func near(device, value, corrected string, distance uint32) *handler.NearMiss {
	miss := &handler.NearMiss{Device: device, Distance: distance, CorrectedDetails: corrected, Mismatches: []*handler.Mismatch{{Condition: "A"}}}
	if value != "" {
		miss.Mismatches[0].Found = []string{value}
	}
	return miss
}

func TestJoin(t *testing.T) {
	misses := []*handler.NearMiss{
		near("c", "v2", "", typo.Far+50), near("b", "v1", "", typo.Far+50), near("d", "", "", typo.Absent), near("a", "v1", "", typo.Far),
	}
	groups := handler.Join(misses)
	require.Len(t, groups, 2)
	want := near("a", "v1", "", typo.Far)
	want.Count = 3
	want.Series = []*handler.Series{{First: "a", Count: 1}, {First: "b", Count: 1}, {First: "c", Count: 1}}
	want.Mismatches[0].Found = []string{"v1", "v2"}
	require.True(t, proto.Equal(want, groups[0]), "%v", groups[0])
	require.Equal(t, "d", groups[1].GetDevice())

	// a mistake explains the closest device
	groups = handler.Join(append(misses, near("x", "v3", "fixed", 1), near("y", "v4", "fixed", 1), near("z", "v5", "also", 2), near("e", "v6", "no", 3)))
	require.Len(t, groups, 2)
	require.Equal(t, "fixed", groups[0].GetCorrectedDetails())
	require.EqualValues(t, 2, groups[0].GetCount())
	require.Equal(t, "also", groups[1].GetCorrectedDetails())

	require.Empty(t, handler.Join(nil))
}

func TestJoinIsLimited(t *testing.T) {
	var misses []*handler.NearMiss
	for i := range 40 {
		misses = append(misses, near(fmt.Sprint(i), fmt.Sprint(i), fmt.Sprint(i/4), typo.Far))
	}
	groups := handler.Join(misses)
	require.Len(t, groups, 5)
	for _, group := range groups {
		require.EqualValues(t, 4, group.GetCount())
		require.Len(t, group.GetSeries(), 3)
		require.Len(t, group.GetMismatches()[0].GetFound(), 3)
	}
}
