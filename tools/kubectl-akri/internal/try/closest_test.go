package try_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/trial"
	"akri.sh/tools/kubectl-akri/internal/try"
)

// group returns a group of one device of a node.
func group(kind, device, corrected string, distance int) trial.Group {
	return trial.Group{
		Kind: kind, Distance: distance, CorrectedDetails: corrected, Mismatches: []trial.Mismatch{{Condition: "K", Found: []string{device}}},
		Devices: []trial.Devices{{First: device, Series: []trial.Series{{First: device, Count: 1}}, Count: 1}},
	}
}

func TestClosest(t *testing.T) {
	results := []trial.Result{
		{Node: "node-a", Groups: []trial.Group{group("block", "zram0", "zram*", 1), group("tty", "tty0", "", 3)}},
		{Node: "node-b"},
		{Node: "node-c", Groups: []trial.Group{group("block", "zram0", "zram*", 1), group("mem", "null", "", 2)}},
	}
	var texts []string
	for _, group := range try.Closest(results) {
		texts = append(texts, group.String())
	}
	require.Equal(t, []string{
		`zram0 (block) on node-a, node-c: K did not match: it is "zram0"`,
		`null (mem) on node-c: K did not match: it is "null"`,
		`tty0 (tty) on node-a: K did not match: it is "tty0"`,
	}, texts)
	require.Empty(t, results[0].Groups[0].Devices[0].Nodes)

	// many kinds
	results = nil
	for i := range 7 {
		results = append(results, trial.Result{Node: fmt.Sprint("node-", i), Groups: []trial.Group{group(fmt.Sprint(i), "x", "", 7-i)}})
	}
	closest := try.Closest(results)
	require.Len(t, closest, 5)
	require.Equal(t, "6", closest[0].Kind)
}

// A correction of one node that matches devices of another kind on another node is not offered.
func TestCorrectionOfSeveralKinds(t *testing.T) {
	for _, group := range try.Closest([]trial.Result{
		{Node: "node-a", Groups: []trial.Group{group("block", "zram0", "zram*", 1)}},
		{Node: "node-b", Groups: []trial.Group{group("misc", "zram-control", "zram*", 1)}},
	}) {
		require.Empty(t, group.CorrectedDetails)
	}
}

func TestAllClosest(t *testing.T) {
	groups := try.AllClosest(t.Context(), func(_ context.Context, _ *corev1.Pod, _ string, _ []string, in io.Reader, out, _ io.Writer) error {
		var received trial.Request
		require.NoError(t, json.NewDecoder(in).Decode(&received))
		require.True(t, received.OnlyClosest)
		return json.NewEncoder(out).Encode(trial.Result{Groups: []trial.Group{group("camera", "http://me:hunter22@camera/", "", 1)}})
	}, []corev1.Pod{pod("a", "agent", "node-a", true)}, request)
	require.Len(t, groups, 1)
	require.Equal(t, `http://MASKED@camera/ (camera) on node-a: K did not match: it is "http://MASKED@camera/"`, groups[0].String())
}
