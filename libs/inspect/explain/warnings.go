package explain

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// newestEvent returns the newest of the Events with the reason about one of the objects, or nil. It
// is evidence: it explains why an object does not work, but the object shows that it does not.
func newestEvent(events []corev1.Event, reason string, about func(corev1.ObjectReference) bool) *corev1.Event {
	var newest *corev1.Event
	for i := range events {
		event := &events[i]
		if event.Reason == reason && about(event.InvolvedObject) && (newest == nil || EventTime(newest).Before(EventTime(event))) {
			newest = event
		}
	}
	return newest
}

// isBeingPrepared reports whether the kubelet has not provided yet what the containers of the Pod
// need. Only then can an Event state why it does not.
func isBeingPrepared(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending && !podHas(pod, corev1.PodReadyToStartContainers)
}

// EventTime returns when the Event was last seen.
func EventTime(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	default:
		return event.CreationTimestamp.Time
	}
}

// ofWorkload reports whether an object is the workload of the service, or a ReplicaSet of it.
func ofWorkload(service Service) func(corev1.ObjectReference) bool {
	return func(object corev1.ObjectReference) bool {
		return object.Namespace == service.Namespace && (object.Kind == service.Kind && object.Name == service.Name ||
			object.Kind == "ReplicaSet" && strings.HasPrefix(object.Name, service.Name+"-"))
	}
}

func ofPod(pod *corev1.Pod) func(corev1.ObjectReference) bool {
	return func(object corev1.ObjectReference) bool {
		return object.Kind == "Pod" && object.UID == pod.UID && object.Name == pod.Name
	}
}
