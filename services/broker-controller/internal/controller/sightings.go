package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/plan"
)

// sightings holds the times of the Pods and Instances in the cache. It handles the events of the
// cache, so an entry leaves with its object.
type sightings struct {
	mu         sync.Mutex
	byPod      map[types.UID]plan.Times
	byInstance map[types.UID]time.Time
}

func newSightings() *sightings {
	return &sightings{byPod: map[types.UID]plan.Times{}, byInstance: map[types.UID]time.Time{}}
}

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

// instanceChanged handles an event, as changed does.
func (s *sightings) instanceChanged(before, after *akriv0.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before != nil && (after == nil || before.UID != after.UID) {
		delete(s.byInstance, before.UID)
	}
	if after != nil && s.byInstance[after.UID].IsZero() {
		s.byInstance[after.UID] = time.Now()
	}
}

// ofInstance returns when this process first saw the Instance.
func (s *sightings) ofInstance(instance *akriv0.Instance, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen := s.byInstance[instance.UID]; !seen.IsZero() {
		return seen
	}
	return now // the event has not arrived yet
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
