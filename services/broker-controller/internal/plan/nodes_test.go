package plan_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/services/broker-controller/internal/plan"
)

const startTimeout = 30 * time.Second

func TestForPodsMovesBlockedPods(t *testing.T) {
	const running, pending, failed = corev1.PodRunning, corev1.PodPending, corev1.PodFailed
	pod := func(node string, phase corev1.PodPhase, age time.Duration, change ...func(*plan.Pod)) plan.Pod {
		p := plan.Pod{Times: times(phase, ago(age)), Name: node + "-pod", Phase: phase, Hash: "new", Blocked: phase != running}
		p.Accepted = time.Time{}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	starting := func(p *plan.Pod) { p.Blocked = false }
	deleting := func(p *plan.Pod) { p.Deleting = true }
	outdated := func(p *plan.Pod) { p.Hash = "old" }
	attempt := func(n int) func(*plan.Pod) { return func(p *plan.Pod) { p.Attempt, p.Accepted = n, p.Seen } }
	move := plan.Pods{Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Moved}}}
	create := func(node string) plan.Pods {
		return plan.Pods{Create: []plan.Creation{{Name: node + "-pod", Node: node}}}
	}
	retryIn := func(d time.Duration) plan.Pods { return plan.Pods{RequeueAfter: d} }
	type failures = map[string]plan.Failure
	for name, c := range map[string]struct {
		nodes    []string
		capacity int
		failures failures
		existing []plan.Pod
		want     plan.Pods
	}{
		"blocked for 29 s":           {[]string{"a", "b"}, 1, nil, []plan.Pod{pod("a", pending, 29*time.Second)}, retryIn(time.Second)},
		"blocked for 30 s":           {[]string{"a", "b"}, 1, nil, []plan.Pod{pod("a", pending, startTimeout)}, move},
		"starts slowly":              {[]string{"a", "b"}, 1, nil, []plan.Pod{pod("a", pending, time.Hour, starting)}, plan.Pods{}},
		"blocked and outdated":       {[]string{"a", "b"}, 1, nil, []plan.Pod{pod("a", pending, time.Hour, outdated)}, plan.Pods{Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Outdated}}}},
		"only one node":              {[]string{"a"}, 1, nil, []plan.Pod{pod("a", pending, time.Hour)}, plan.Pods{}},
		"only one node, soon":        {[]string{"a"}, 1, nil, []plan.Pod{pod("a", pending, time.Second)}, plan.Pods{}},
		"every node has a broker":    {[]string{"a", "b"}, 2, nil, []plan.Pod{pod("a", pending, time.Hour), pod("b", running, 0)}, plan.Pods{}},
		"one of two is blocked":      {[]string{"a", "b", "c"}, 2, nil, []plan.Pod{pod("a", pending, time.Hour), pod("b", running, 0)}, move},
		"the moved one is ending":    {[]string{"a", "b"}, 1, failures{"a-pod": {At: now, Count: 1}}, []plan.Pod{pod("a", pending, time.Hour, deleting)}, plan.Pods{}},
		"the moved one is gone":      {[]string{"a", "b"}, 1, failures{"a-pod": {At: now, Count: 1}}, nil, create("b")},
		"the other one runs":         {[]string{"a", "b"}, 1, failures{"a-pod": {At: ago(time.Hour), Count: 1}}, []plan.Pod{pod("b", running, 0)}, plan.Pods{}},
		"all failed, none exists":    {[]string{"a", "b"}, 1, failures{"a-pod": {At: now, Count: 1}, "b-pod": {At: ago(time.Second), Count: 1}}, nil, create("b")},
		"failed before, not tried":   {[]string{"a", "b", "c"}, 1, failures{"a-pod": {At: ago(time.Hour), Count: 1}, "b-pod": {At: ago(2 * time.Hour), Count: 1}}, nil, create("c")},
		"the longest ago comes next": {[]string{"a", "b"}, 1, failures{"a-pod": {At: ago(time.Hour), Count: 1}, "b-pod": {At: ago(2 * time.Hour), Count: 1}}, nil, create("b")},
		"the other one failed recently": {
			[]string{"a", "b"}, 1, failures{"b-pod": {At: ago(50 * time.Second), Count: 1}}, []plan.Pod{pod("a", pending, time.Minute)}, retryIn(10 * time.Second),
		},
		"the other one failed often": {
			[]string{"a", "b"}, 1, failures{"b-pod": {At: ago(time.Minute), Count: 3}}, []plan.Pod{pod("a", pending, time.Minute)}, retryIn(3 * time.Minute),
		},
		"the other one may be retried": {
			[]string{"a", "b"}, 1, failures{"b-pod": {At: ago(time.Minute), Count: 1}}, []plan.Pod{pod("a", pending, time.Minute)}, move,
		},
		"rejected once": {[]string{"a", "b"}, 1, nil, []plan.Pod{pod("a", failed, time.Second, attempt(0))}, plan.Pods{
			Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Ended, Force: true}},
			Create: []plan.Creation{{Name: "a-pod", Node: "a", Attempt: 1}},
		}},
		"rejected for 30 s": {[]string{"a", "b"}, 1, nil, []plan.Pod{pod("a", failed, 16*time.Second, attempt(4))}, plan.Pods{
			Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Moved, Force: true}},
			Create: []plan.Creation{{Name: "b-pod", Node: "b"}},
		}},
		"rejected, only one node": {[]string{"a"}, 1, nil, []plan.Pod{pod("a", failed, 16*time.Second, attempt(4))}, plan.Pods{
			Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Ended, Force: true}},
			Create: []plan.Creation{{Name: "a-pod", Node: "a", Attempt: 5}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			desired := desired(c.capacity, c.nodes...)
			desired.StartTimeout, desired.Failures = startTimeout, c.failures
			require.Equal(t, c.want, plan.ForPods(now, desired, c.existing))
		})
	}
}

// TestMovesRespectCapacity tries all combinations of the states of three nodes.
func TestMovesRespectCapacity(t *testing.T) {
	states := []plan.Pod{
		{}, // no Pod
		{Phase: corev1.PodRunning, Times: plan.Times{Seen: ago(time.Hour), Accepted: ago(time.Hour)}},
		{Phase: corev1.PodPending, Times: plan.Times{Seen: ago(time.Hour), Pending: ago(time.Hour)}, Blocked: true},
		{Phase: corev1.PodPending, Times: plan.Times{Seen: now, Pending: now}, Blocked: true},
		{Phase: corev1.PodFailed, Times: plan.Times{Seen: ago(time.Hour), Accepted: ago(time.Hour)}, Blocked: true},
		{Phase: corev1.PodPending, Times: plan.Times{Seen: ago(time.Hour), Pending: ago(time.Hour)}, Blocked: true, Deleting: true},
	}
	failures := []plan.Failure{{}, {At: now, Count: 1}, {At: ago(time.Hour), Count: 2}}
	perNode := len(states) * len(failures)
	for i := range perNode * perNode * perNode {
		desired := desired(0, "a", "b", "c")
		desired.StartTimeout, desired.Failures = startTimeout, map[string]plan.Failure{}
		exists, code := map[string]bool{}, i
		var existing []plan.Pod
		for _, name := range []string{"a-pod", "b-pod", "c-pod"} {
			pod, failure := states[code%len(states)], failures[code/len(states)%len(failures)]
			code /= perNode
			if pod.Name, pod.Hash = name, "new"; pod.Phase != "" {
				existing, exists[name] = append(existing, pod), true
			}
			if failure.Count > 0 {
				desired.Failures[name] = failure
			}
		}
		for desired.Capacity = max(1, len(existing)); desired.Capacity <= len(desired.Nodes); desired.Capacity++ {
			requireWithinCapacity(t, desired, existing, exists)
		}
	}
}

func requireWithinCapacity(t *testing.T, desired plan.Desired, existing []plan.Pod, exists map[string]bool) {
	t.Helper()
	exists = maps.Clone(exists)
	got := plan.ForPods(now, desired, existing)
	for _, deletion := range got.Delete {
		if deletion.Force {
			delete(exists, deletion.Name)
		}
	}
	for _, creation := range got.Create {
		exists[creation.Name] = true
	}
	require.LessOrEqual(t, len(exists), desired.Capacity, "%+v\n%+v", existing, got)
	require.True(t, len(exists) == desired.Capacity || slices.ContainsFunc(got.Delete, func(d plan.Deletion) bool { return d.Reason == plan.Moved }),
		"a place is free: %+v\n%+v", existing, got)
	for _, pod := range existing {
		if pod.Phase == corev1.PodRunning {
			require.NotContains(t, got.Delete, plan.Deletion{Name: pod.Name, Reason: plan.Moved})
		}
	}
}
