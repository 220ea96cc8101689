package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

// otherClocks are offsets of the clocks of the API server and the kubelets.
var otherClocks = map[string]time.Duration{"behind": -time.Hour, "same": 0, "ahead": time.Hour}

// withClock returns the Pod with times of another clock.
func withClock(pod *corev1.Pod, accepted bool, clock time.Time) *corev1.Pod {
	pod.CreationTimestamp = metav1.NewTime(clock)
	if accepted {
		pod.Status.StartTime = &pod.CreationTimestamp
	}
	return pod
}

func TestSightingsIgnoreOtherClocks(t *testing.T) {
	for name, offset := range otherClocks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, started := newSightings(), time.Now()
				at := func(minutes int) time.Time { return started.Add(time.Duration(minutes) * time.Minute) }
				state := func(phase corev1.PodPhase, accepted bool) *corev1.Pod {
					return withClock(pod(corev1.PodStatus{Phase: phase}), accepted, time.Now().Add(offset))
				}
				var previous *corev1.Pod
				for minute, step := range []struct {
					state *corev1.Pod
					want  plan.Times
				}{
					{state(corev1.PodPending, false), plan.Times{Seen: at(0), Pending: at(0)}},
					{state(corev1.PodPending, true), plan.Times{Seen: at(0), Pending: at(0), Accepted: at(1)}},
					{state(corev1.PodRunning, true), plan.Times{Seen: at(0), Accepted: at(1)}},
					{state(corev1.PodPending, true), plan.Times{Seen: at(0), Pending: at(3), Accepted: at(1)}},
					{state(corev1.PodFailed, true), plan.Times{Seen: at(0), Accepted: at(1)}},
				} {
					require.Equal(t, step.want, s.of(step.state, at(minute)), "before the event")
					s.changed(previous, step.state)
					require.Equal(t, step.want, s.of(step.state, at(60)))
					previous = step.state
					<-time.After(time.Minute)
				}
			})
		})
	}
}

func TestSightingsOfDeletedPodsAreRemoved(t *testing.T) {
	s := newSightings()
	of := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo-8120fe-pod", UID: uid}}
	}
	s.changed(nil, of("first"))
	s.changed(of("first"), of("second"))
	require.NotContains(t, s.byPod, types.UID("first"))
	s.changed(of("second"), nil)
	require.Empty(t, s.byPod)
	s.of(of("second"), time.Now())
	require.Empty(t, s.byPod, "a Pod without an event can be gone")
}

// A Pod that does not start or has ended is replaced after the same time, whatever the other clocks
// are.
func TestPlanIgnoresOtherClocks(t *testing.T) {
	const stuckAfter = 5 * time.Minute
	instance := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{UID: "i"}}
	owner := *metav1.NewControllerRef(instance, akriv0.GroupVersion.WithKind("Instance"))
	desired := plan.Desired{
		Nodes: map[string]string{"p": "node-a", "q": "node-b"}, Capacity: 1, StuckAfter: stuckAfter, StartTimeout: 30 * time.Second,
	}
	for clock, offset := range otherClocks {
		for name, c := range map[string]struct {
			status   corev1.PodStatus
			accepted bool
			after    time.Duration
			reason   plan.Reason
		}{
			"stuck":        {corev1.PodStatus{Phase: corev1.PodPending}, true, stuckAfter, plan.Stuck},
			"blocked":      {corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: container(0, waiting("ErrImagePull", ""))}, true, 30 * time.Second, plan.Moved},
			"ended":        {corev1.PodStatus{Phase: corev1.PodFailed}, true, 2 * time.Second, plan.Ended},
			"not accepted": {corev1.PodStatus{Phase: corev1.PodFailed}, false, stuckAfter, plan.Ended},
		} {
			t.Run(clock+"/"+name, func(t *testing.T) {
				now := time.Now()
				pod := withClock(again(c.status), c.accepted, now.Add(offset))
				pod.OwnerReferences = []metav1.OwnerReference{owner}
				s := newSightings()
				s.byPod[pod.UID] = withSighting(plan.Times{}, pod, now)
				deletions := func(after time.Duration) []plan.Deletion {
					then := now.Add(after)
					return plan.ForPods(then, desired, []plan.Pod{planPod(pod, instance, s.of(pod, then))}).Delete
				}
				require.Empty(t, deletions(c.after-time.Second))
				require.Len(t, deletions(c.after), 1)
				require.Equal(t, c.reason, deletions(c.after)[0].Reason)
			})
		}
	}
}

func TestRolloutIgnoresOtherClocks(t *testing.T) {
	const stuckAfter = 5 * time.Minute
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, offset := range otherClocks {
		t.Run(name, func(t *testing.T) {
			cache := newCache(t)
			configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo", UID: "c"}}
			instance := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo-8120fe"}}
			pod := withClock(pod(corev1.PodStatus{Phase: corev1.PodPending}), true, now.Add(offset))
			pod.Namespace, pod.Labels = "default", map[string]string{render.LabelConfiguration: "echo"}
			require.NoError(t, cache.Pods.GetIndexer().Add(pod))
			s := newSightings()
			s.byPod[pod.UID] = withSighting(plan.Times{}, pod, now)
			rollout := newRollout(stuckAfter, s)
			mayStart := func(after time.Duration) bool {
				return rollout.tryStart(cache, instance, configuration, now.Add(after))
			}
			require.False(t, mayStart(0))
			require.False(t, mayStart(stuckAfter-time.Second))
			require.True(t, mayStart(stuckAfter))
		})
	}
}
