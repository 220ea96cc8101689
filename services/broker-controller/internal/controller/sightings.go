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

// OnAdd implements cache.ResourceEventHandler.
func (s *sightings) OnAdd(object any, _ bool) { s.record(object.(*corev1.Pod)) }

// OnUpdate implements cache.ResourceEventHandler. After a missed deletion, old is another Pod of
// the same name.
func (s *sightings) OnUpdate(old, object any) {
	if previous := old.(*corev1.Pod); previous.UID != object.(*corev1.Pod).UID {
		s.remove(previous)
	}
	s.record(object.(*corev1.Pod))
}

// OnDelete implements cache.ResourceEventHandler.
func (s *sightings) OnDelete(object any) { s.remove(deleted(object).(*corev1.Pod)) }

func (s *sightings) record(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byPod[pod.UID] = withSighting(s.byPod[pod.UID], pod, time.Now())
}

func (s *sightings) remove(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byPod, pod.UID)
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
