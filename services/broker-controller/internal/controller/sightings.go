package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/services/broker-controller/internal/plan"
)

// sightings holds the times of the Pods in the cache. It handles the events of the cache, so an
// entry leaves with its Pod.
type sightings struct {
	mu    sync.Mutex
	byPod map[types.UID]plan.Times
}

func newSightings() *sightings { return &sightings{byPod: map[types.UID]plan.Times{}} }

// changed handles an event. After a missed deletion, before is another Pod of the same name.
func (s *sightings) changed(before, after *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before != nil && (after == nil || before.UID != after.UID) {
		delete(s.byPod, before.UID)
	}
	if after != nil {
		s.byPod[after.UID] = withSighting(s.byPod[after.UID], after, time.Now())
	}
}

// of returns the times of a Pod. The cache can have a Pod whose event has not arrived yet.
func (s *sightings) of(pod *corev1.Pod, now time.Time) plan.Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return withSighting(s.byPod[pod.UID], pod, now)
}

// withSighting adds the time of a sighting of the Pod. It must not use the times in the Pod: see
// plan.Times.
func withSighting(times plan.Times, pod *corev1.Pod, now time.Time) plan.Times {
	if times.Seen.IsZero() {
		times.Seen = now
	}
	if pod.Status.Phase != corev1.PodPending {
		times.Pending = time.Time{}
	} else if times.Pending.IsZero() {
		times.Pending = now
	}
	if pod.Status.StartTime != nil && times.Accepted.IsZero() {
		times.Accepted = now
	}
	return times
}
