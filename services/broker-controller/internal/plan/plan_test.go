package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/services/broker-controller/internal/plan"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const stuckAfter = 5 * time.Minute

func ago(d time.Duration) time.Time { return now.Add(-d) }

func wanted(capacity int, nodes ...string) plan.Wanted {
	pods := map[string]string{}
	for _, node := range nodes {
		pods[node+"-pod"] = node
	}
	return plan.Wanted{Pods: pods, Capacity: capacity, Hash: "new", StuckAfter: stuckAfter}
}

func TestWhatHappensToABrokerPod(t *testing.T) {
	listed, gone := wanted(1, "a"), wanted(1)
	pod := func(phase corev1.PodPhase, age time.Duration, change ...func(*plan.Pod)) plan.Pod {
		p := plan.Pod{Name: "a-pod", Phase: phase, Created: ago(age), Started: ago(age), Hash: "new"}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	unstarted := func(p *plan.Pod) { p.Started = time.Time{} }
	deleting := func(p *plan.Pod) { p.Deleting = true }
	attempt := func(n int) func(*plan.Pod) { return func(p *plan.Pod) { p.Attempt = n } }
	hash := func(h string) func(*plan.Pod) { return func(p *plan.Pod) { p.Hash = h } }
	foreign := func(p *plan.Pod) { p.Foreign = true }
	remove := func(reason plan.Reason) plan.Pods {
		return plan.Pods{Remove: []plan.Removal{{Name: "a-pod", Reason: reason}}}
	}
	replace := func(attempt int) plan.Pods {
		return plan.Pods{
			Remove: []plan.Removal{{Name: "a-pod", Reason: plan.Ended, Now: true}},
			Create: []plan.Creation{{Name: "a-pod", Node: "a", Attempt: attempt}},
		}
	}
	add := plan.Pods{Create: []plan.Creation{{Name: "a-pod", Node: "a"}}}
	const running, pending, failed, succeeded, unknown = corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown
	for name, c := range map[string]struct {
		wanted plan.Wanted
		there  []plan.Pod
		want   plan.Pods
	}{
		"node not listed, running":          {gone, []plan.Pod{pod(running, time.Hour)}, remove(plan.Unwanted)},
		"node not listed, pending":          {gone, []plan.Pod{pod(pending, time.Second)}, remove(plan.Unwanted)},
		"node not listed, failed":           {gone, []plan.Pod{pod(failed, time.Hour)}, remove(plan.Unwanted)},
		"node not listed, no pod":           {gone, nil, plan.Pods{}},
		"running":                           {listed, []plan.Pod{pod(running, time.Hour)}, plan.Pods{}},
		"pending for less than 5 min":       {listed, []plan.Pod{pod(pending, 4*time.Minute)}, plan.Pods{Again: time.Minute}},
		"pending for 5 min":                 {listed, []plan.Pod{pod(pending, stuckAfter)}, remove(plan.Stuck)},
		"pending without a node":            {listed, []plan.Pod{pod(pending, time.Hour, unstarted)}, plan.Pods{}},
		"failed":                            {listed, []plan.Pod{pod(failed, time.Minute)}, replace(1)},
		"succeeded":                         {listed, []plan.Pod{pod(succeeded, time.Minute)}, replace(1)},
		"unknown":                           {listed, []plan.Pod{pod(unknown, time.Minute)}, replace(1)},
		"failed without a node":             {listed, []plan.Pod{pod(failed, time.Minute, unstarted)}, plan.Pods{Again: 4 * time.Minute}},
		"failed without a node long ago":    {listed, []plan.Pod{pod(failed, stuckAfter, unstarted)}, replace(1)},
		"failed again, within its back-off": {listed, []plan.Pod{pod(failed, 3*time.Second, attempt(3))}, plan.Pods{Again: 5 * time.Second}},
		"failed again, after its back-off":  {listed, []plan.Pod{pod(failed, 8*time.Second, attempt(3))}, replace(4)},
		"failed after it had run for long":  {listed, []plan.Pod{pod(failed, time.Hour, attempt(9))}, replace(0)},
		"no pod":                            {listed, nil, add},
		"on its way out":                    {listed, []plan.Pod{pod(running, time.Hour, deleting)}, plan.Pods{}},
		"on its way out, node not listed":   {gone, []plan.Pod{pod(running, time.Hour, deleting)}, plan.Pods{}},
		"of an earlier Instance":            {listed, []plan.Pod{pod(running, time.Hour, foreign)}, remove(plan.Unwanted)},
		"running, outdated, not its turn":   {listed, []plan.Pod{pod(running, time.Hour, hash("old"))}, plan.Pods{Waiting: true}},
		"running, outdated, its turn":       {turn(listed), []plan.Pod{pod(running, time.Hour, hash("old"))}, remove(plan.Outdated)},
		"running, of unknown spec":          {turn(listed), []plan.Pod{pod(running, time.Hour, hash(""))}, plan.Pods{}},
		"pending, outdated":                 {listed, []plan.Pod{pod(pending, time.Second, hash("old"))}, remove(plan.Outdated)},
		"failed, outdated: no back-off":     {listed, []plan.Pod{pod(failed, 0, hash("old"), attempt(5))}, replace(0)},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, plan.ForPods(now, c.wanted, c.there)) })
	}
}

func turn(w plan.Wanted) plan.Wanted {
	w.MayUpdate = true
	return w
}

func TestNeverMorePodsThanCapacity(t *testing.T) {
	running := func(name string) plan.Pod {
		return plan.Pod{Name: name, Phase: corev1.PodRunning, Created: ago(time.Hour), Started: ago(time.Hour), Hash: "new"}
	}
	pending := running("b-pod")
	pending.Phase, pending.Started = corev1.PodPending, time.Time{}
	for name, c := range map[string]struct {
		wanted plan.Wanted
		there  []plan.Pod
		want   plan.Pods
	}{
		"first nodes by name": {wanted(2, "c", "a", "b"), nil, plan.Pods{Create: []plan.Creation{{Name: "a-pod", Node: "a"}, {Name: "b-pod", Node: "b"}}}},
		"those that have a broker come first": {wanted(2, "c", "a", "b"), []plan.Pod{running("c-pod")},
			plan.Pods{Create: []plan.Creation{{Name: "a-pod", Node: "a"}}}},
		"a smaller capacity keeps what runs": {wanted(1, "a", "b", "c"), []plan.Pod{pending, running("c-pod")},
			plan.Pods{Remove: []plan.Removal{{Name: "b-pod", Reason: plan.Unwanted}}}},
		"no capacity": {wanted(0, "a"), []plan.Pod{running("a-pod")}, plan.Pods{Remove: []plan.Removal{{Name: "a-pod", Reason: plan.Unwanted}}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, plan.ForPods(now, c.wanted, c.there)) })
	}
}

func TestOneTurnReplacesOnePod(t *testing.T) {
	old := func(name string) plan.Pod {
		return plan.Pod{Name: name, Phase: corev1.PodRunning, Started: ago(time.Hour), Hash: "old"}
	}
	got := plan.ForPods(now, turn(wanted(2, "a", "b")), []plan.Pod{old("b-pod"), old("a-pod")})
	require.Equal(t, plan.Pods{Remove: []plan.Removal{{Name: "a-pod", Reason: plan.Outdated}}, Waiting: true}, got)
}

func TestDelayDoublesUpToFiveMinutes(t *testing.T) {
	for attempt, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 8: 256 * time.Second, 9: 5 * time.Minute, 1000: 5 * time.Minute} {
		require.Equal(t, want, plan.Delay(attempt), attempt)
	}
}

func TestOneJobForEachSpec(t *testing.T) {
	for name, c := range map[string]struct {
		wanted bool
		there  []plan.Job
		remove []string
		create bool
	}{
		"none yet":                       {true, nil, nil, true},
		"made under another generation":  {true, []plan.Job{{Name: "x-1-job", Hash: "new"}}, nil, false},
		"made by Akri 0.13":              {true, []plan.Job{{Name: "x-1-job"}}, nil, false},
		"another spec":                   {true, []plan.Job{{Name: "x-1-job", Hash: "old"}}, []string{"x-1-job"}, true},
		"made twice":                     {true, []plan.Job{{Name: "x-1-job", Hash: "new"}, {Name: "x-2-job", Hash: "new"}}, []string{"x-2-job"}, false},
		"of an earlier Instance":         {true, []plan.Job{{Name: "x-1-job", Hash: "new", Foreign: true}}, []string{"x-1-job"}, true},
		"on its way out":                 {true, []plan.Job{{Name: "x-1-job", Hash: "new", Deleting: true}}, nil, true},
		"no longer wanted":               {false, []plan.Job{{Name: "x-1-job", Hash: "new"}}, []string{"x-1-job"}, false},
		"no longer wanted, by Akri 0.13": {false, []plan.Job{{Name: "x-1-job"}}, []string{"x-1-job"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			remove, create := plan.ForJobs(c.wanted, "new", c.there)
			require.Equal(t, c.remove, remove)
			require.Equal(t, c.create, create)
		})
	}
}

func TestAServiceIsThereFromTheFirstRunningBrokerToTheLast(t *testing.T) {
	for name, c := range map[string]struct {
		there   bool
		brokers plan.Brokers
		want    bool
	}{
		"nothing runs yet":         {false, plan.Brokers{Left: 1, Coming: true}, false},
		"the first runs":           {false, plan.Brokers{Running: 1, Left: 1}, true},
		"being replaced":           {true, plan.Brokers{Left: 1}, true},
		"none left, one is coming": {true, plan.Brokers{Coming: true}, true},
		"none left":                {true, plan.Brokers{}, false},
	} {
		require.Equal(t, c.want, plan.WantsService(c.there, c.brokers), name)
	}
	require.Equal(t, plan.Create, plan.ForObject(true, false, "new", ""))
	require.Equal(t, plan.Keep, plan.ForObject(true, true, "new", "new"))
	require.Equal(t, plan.Keep, plan.ForObject(true, true, "new", ""))
	require.Equal(t, plan.Replace, plan.ForObject(true, true, "new", "old"))
	require.Equal(t, plan.Remove, plan.ForObject(false, true, "", "old"))
	require.Equal(t, plan.Keep, plan.ForObject(false, false, "", ""))
}
