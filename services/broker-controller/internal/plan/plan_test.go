package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const stuckAfter = 5 * time.Minute

func ago(d time.Duration) time.Time { return now.Add(-d) }

// times returns the times of a Pod that has been in the phase since then.
func times(phase corev1.PodPhase, since time.Time) plan.Times {
	t := plan.Times{Seen: since, Accepted: since}
	if phase == corev1.PodPending {
		t.Pending = since
	}
	return t
}

func desired(capacity int, nodes ...string) plan.Desired {
	pods := map[string]string{}
	for _, node := range nodes {
		pods[node+"-pod"] = node
	}
	return plan.Desired{Nodes: pods, Capacity: capacity, Hash: "new", StuckAfter: stuckAfter}
}

func TestForPods(t *testing.T) {
	listed, gone := desired(1, "a"), desired(1)
	pod := func(phase corev1.PodPhase, age time.Duration, change ...func(*plan.Pod)) plan.Pod {
		p := plan.Pod{Times: times(phase, ago(age)), Name: "a-pod", Phase: phase, Hash: "new"}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	unaccepted := func(p *plan.Pod) { p.Accepted = time.Time{} }
	acceptedAgo := func(d time.Duration) func(*plan.Pod) { return func(p *plan.Pod) { p.Accepted = ago(d) } }
	deleting := func(p *plan.Pod) { p.Deleting = true }
	attempt := func(n int) func(*plan.Pod) { return func(p *plan.Pod) { p.Attempt = n } }
	hash := func(h string) func(*plan.Pod) { return func(p *plan.Pod) { p.Hash = h } }
	foreign := func(p *plan.Pod) { p.Foreign = true }
	remove := func(reason plan.Reason) plan.Pods {
		return plan.Pods{Delete: []plan.Deletion{{Name: "a-pod", Reason: reason}}}
	}
	replace := func(attempt int) plan.Pods {
		return plan.Pods{
			Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Ended, Force: true}},
			Create: []plan.Creation{{Name: "a-pod", Node: "a", Attempt: attempt}},
		}
	}
	withoutDevice := func(p *plan.Pod) { p.WithoutDevice = true }
	replaceForDevice := func(attempt int) plan.Pods {
		changes := replace(attempt)
		changes.Delete[0].Reason = plan.WithoutDevice
		return changes
	}
	add := plan.Pods{Create: []plan.Creation{{Name: "a-pod", Node: "a"}}}
	const running, pending, failed, succeeded, unknown = corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown
	for name, c := range map[string]struct {
		desired  plan.Desired
		existing []plan.Pod
		want     plan.Pods
	}{
		"node not listed, running":          {gone, []plan.Pod{pod(running, time.Hour)}, remove(plan.Unneeded)},
		"node not listed, pending":          {gone, []plan.Pod{pod(pending, time.Second)}, remove(plan.Unneeded)},
		"node not listed, failed":           {gone, []plan.Pod{pod(failed, time.Hour)}, remove(plan.Unneeded)},
		"node not listed, no pod":           {gone, nil, plan.Pods{}},
		"running":                           {listed, []plan.Pod{pod(running, time.Hour)}, plan.Pods{}},
		"pending for less than 5 min":       {listed, []plan.Pod{pod(pending, 4*time.Minute)}, plan.Pods{RequeueAfter: time.Minute}},
		"pending for 5 min":                 {listed, []plan.Pod{pod(pending, stuckAfter)}, remove(plan.Stuck)},
		"pending without a node":            {listed, []plan.Pod{pod(pending, time.Hour, unaccepted)}, plan.Pods{}},
		"accepted after an hour":            {listed, []plan.Pod{pod(pending, time.Hour, acceptedAgo(time.Minute))}, plan.Pods{RequeueAfter: 4 * time.Minute}},
		"pending again after an hour":       {listed, []plan.Pod{pod(pending, time.Minute, acceptedAgo(time.Hour))}, plan.Pods{RequeueAfter: 4 * time.Minute}},
		"failed":                            {listed, []plan.Pod{pod(failed, time.Minute)}, replace(1)},
		"succeeded":                         {listed, []plan.Pod{pod(succeeded, time.Minute)}, replace(1)},
		"unknown":                           {listed, []plan.Pod{pod(unknown, time.Minute)}, replace(1)},
		"failed without a node":             {listed, []plan.Pod{pod(failed, time.Minute, unaccepted)}, plan.Pods{RequeueAfter: 4 * time.Minute}},
		"failed without a node, long ago":   {listed, []plan.Pod{pod(failed, stuckAfter, unaccepted)}, replace(1)},
		"failed again, within its backoff":  {listed, []plan.Pod{pod(failed, 3*time.Second, attempt(3))}, plan.Pods{RequeueAfter: 5 * time.Second}},
		"failed again, after its backoff":   {listed, []plan.Pod{pod(failed, 8*time.Second, attempt(3))}, replace(4)},
		"failed after a long run":           {listed, []plan.Pod{pod(failed, time.Hour, attempt(9))}, replace(0)},
		"no pod":                            {listed, nil, add},
		"deleting":                          {listed, []plan.Pod{pod(running, time.Hour, deleting)}, plan.Pods{}},
		"deleting, node not listed":         {gone, []plan.Pod{pod(running, time.Hour, deleting)}, plan.Pods{}},
		"of an earlier Instance":            {listed, []plan.Pod{pod(running, time.Hour, foreign)}, remove(plan.Unneeded)},
		"running, outdated, update pending": {listed, []plan.Pod{pod(running, time.Hour, hash("old"))}, plan.Pods{UpdatePending: true}},
		"running, outdated, may update":     {mayUpdate(listed), []plan.Pod{pod(running, time.Hour, hash("old"))}, remove(plan.Outdated)},
		"running, of unknown spec":          {mayUpdate(listed), []plan.Pod{pod(running, time.Hour, hash(""))}, plan.Pods{}},
		"running without its device":        {listed, []plan.Pod{pod(running, time.Second, withoutDevice)}, replaceForDevice(1)},
		"pending without its device":        {listed, []plan.Pod{pod(pending, time.Second, withoutDevice)}, replaceForDevice(1)},
		"without its device, just created":  {listed, []plan.Pod{pod(running, 0, withoutDevice)}, plan.Pods{RequeueAfter: time.Second}},
		"without its device, again":         {listed, []plan.Pod{pod(running, time.Second, withoutDevice, attempt(2))}, plan.Pods{RequeueAfter: 3 * time.Second}},
		"without its device, not needed":    {gone, []plan.Pod{pod(running, time.Hour, withoutDevice)}, remove(plan.Unneeded)},
		"pending, outdated":                 {listed, []plan.Pod{pod(pending, time.Second, hash("old"))}, remove(plan.Outdated)},
		"failed, outdated: no backoff":      {listed, []plan.Pod{pod(failed, 0, hash("old"), attempt(5))}, replace(0)},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, plan.ForPods(now, c.desired, c.existing)) })
	}
}

func mayUpdate(d plan.Desired) plan.Desired {
	d.MayUpdate = true
	return d
}

func TestForPodsRespectsCapacity(t *testing.T) {
	running := func(name string) plan.Pod {
		return plan.Pod{Times: times(corev1.PodRunning, ago(time.Hour)), Name: name, Phase: corev1.PodRunning, Hash: "new"}
	}
	pending := plan.Pod{Times: plan.Times{Seen: ago(time.Hour), Pending: ago(time.Hour)}, Name: "b-pod", Phase: corev1.PodPending, Hash: "new"}
	for name, c := range map[string]struct {
		desired  plan.Desired
		existing []plan.Pod
		want     plan.Pods
	}{
		"first nodes by name": {desired(2, "c", "a", "b"), nil, plan.Pods{Create: []plan.Creation{{Name: "a-pod", Node: "a"}, {Name: "b-pod", Node: "b"}}}},
		"nodes with a broker come first": {desired(2, "c", "a", "b"), []plan.Pod{running("c-pod")},
			plan.Pods{Create: []plan.Creation{{Name: "a-pod", Node: "a"}}}},
		"a smaller capacity keeps what runs": {desired(1, "a", "b", "c"), []plan.Pod{pending, running("c-pod")},
			plan.Pods{Delete: []plan.Deletion{{Name: "b-pod", Reason: plan.Unneeded}}}},
		"no capacity": {desired(0, "a"), []plan.Pod{running("a-pod")}, plan.Pods{Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Unneeded}}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, plan.ForPods(now, c.desired, c.existing)) })
	}
}

func TestForPodsUpdatesOnePodAtATime(t *testing.T) {
	old := func(name string) plan.Pod {
		return plan.Pod{Times: times(corev1.PodRunning, ago(time.Hour)), Name: name, Phase: corev1.PodRunning, Hash: "old"}
	}
	got := plan.ForPods(now, mayUpdate(desired(2, "a", "b")), []plan.Pod{old("b-pod"), old("a-pod")})
	require.Equal(t, plan.Pods{Delete: []plan.Deletion{{Name: "a-pod", Reason: plan.Outdated}}, UpdatePending: true}, got)
}

func TestBackoffDoublesUpToFiveMinutes(t *testing.T) {
	for attempt, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 8: 256 * time.Second, 9: 5 * time.Minute, 1000: 5 * time.Minute} {
		require.Equal(t, want, plan.Backoff(attempt), attempt)
	}
}

func TestForJobs(t *testing.T) {
	instance, earlier := &akriv0.Instance{}, &akriv0.Instance{}
	instance.UID, earlier.UID = "new", "old"
	job := func(name, hash string, owner *akriv0.Instance) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{render.AnnotationSpecHash: hash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, akriv0.GroupVersion.WithKind("Instance"))},
		}}
	}
	deleting := job("x-1-job", "new", instance)
	deleting.DeletionTimestamp = &metav1.Time{Time: now}
	for name, c := range map[string]struct {
		desired  string
		existing []*batchv1.Job
		remove   []string
		create   bool
	}{
		"none yet":                            {"new", nil, nil, true},
		"created for another generation":      {"new", []*batchv1.Job{job("x-1-job", "new", instance)}, nil, false},
		"created by upstream Akri":            {"new", []*batchv1.Job{job("x-1-job", "", instance)}, nil, false},
		"another spec":                        {"new", []*batchv1.Job{job("x-1-job", "old", instance)}, []string{"x-1-job"}, true},
		"two with the same spec":              {"new", []*batchv1.Job{job("x-1-job", "new", instance), job("x-2-job", "new", instance)}, []string{"x-2-job"}, false},
		"of an earlier Instance":              {"new", []*batchv1.Job{job("x-1-job", "new", earlier)}, []string{"x-1-job"}, true},
		"deleting":                            {"new", []*batchv1.Job{deleting}, nil, true},
		"no longer desired":                   {"", []*batchv1.Job{job("x-1-job", "new", instance)}, []string{"x-1-job"}, false},
		"no longer desired, by upstream Akri": {"", []*batchv1.Job{job("x-1-job", "", instance)}, []string{"x-1-job"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			remove, create := plan.ForJobs(instance, c.desired, c.existing)
			var names []string
			for _, job := range remove {
				names = append(names, job.Name)
			}
			require.Equal(t, c.remove, names)
			require.Equal(t, c.create, create)
		})
	}
}

func TestForService(t *testing.T) {
	for name, c := range map[string]struct {
		exists  bool
		brokers plan.Brokers
		want    bool
	}{
		"nothing runs yet":           {false, plan.Brokers{Active: 1, Expected: true}, false},
		"the first one runs":         {false, plan.Brokers{Running: 1, Active: 1}, true},
		"being replaced":             {true, plan.Brokers{Active: 1}, true},
		"none left, one is expected": {true, plan.Brokers{Expected: true}, true},
		"none left":                  {true, plan.Brokers{}, false},
	} {
		require.Equal(t, c.want, plan.NeedsService(c.exists, c.brokers), name)
	}
	require.Equal(t, plan.Create, plan.ForService(true, false, "new", ""))
	require.Equal(t, plan.Keep, plan.ForService(true, true, "new", "new"))
	require.Equal(t, plan.Keep, plan.ForService(true, true, "new", ""))
	require.Equal(t, plan.Replace, plan.ForService(true, true, "new", "old"))
	require.Equal(t, plan.Delete, plan.ForService(false, true, "", "old"))
	require.Equal(t, plan.Keep, plan.ForService(false, false, "", ""))
}
