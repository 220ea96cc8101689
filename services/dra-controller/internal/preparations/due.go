package preparations

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Annotation of a Pod has the time of the return of the plugin for which its kubelet was made to
// sync it.
const Annotation = akriv0.Group + "/plugin-returned"

// Due returns the value of the annotation with which the kubelet must sync the Pod, and whether the
// Pod lacks it. A preparation can have failed if the plugin of the node became ready after the
// kubelet began to start the Pod. The plugins are the Pods of the plugin on the node.
//
// All times are those of the kubelet of the node, so that clocks that differ do not matter. They
// have whole seconds, so that a Pod that starts in the second of the return is synced once too
// often.
func Due(pod *corev1.Pod, plugins []*corev1.Pod) (returned string, due bool) {
	if pod.Status.StartTime == nil || pod.DeletionTimestamp != nil || isTrue(pod, corev1.PodReadyToStartContainers) {
		return "", false // the kubelet has not begun, or the preparation has succeeded
	}
	since := lastReady(plugins)
	if since.Before(pod.Status.StartTime) {
		return "", false
	}
	returned = since.UTC().Format(time.RFC3339)
	return returned, pod.Annotations[Annotation] < returned
}

// lastReady returns when the last of the plugins that are ready became ready: in an upgrade a node
// has two. Without one it returns the zero time.
func lastReady(plugins []*corev1.Pod) (since metav1.Time) {
	for _, plugin := range plugins {
		if ready := condition(plugin, corev1.PodReady); ready.Status == corev1.ConditionTrue && since.Before(&ready.LastTransitionTime) {
			since = ready.LastTransitionTime
		}
	}
	return since
}

func isTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return condition(pod, kind).Status == corev1.ConditionTrue
}

// condition returns the condition of the Pod, or an empty one.
func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.PodCondition{}
	}
	return pod.Status.Conditions[i]
}
