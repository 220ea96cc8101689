package controller

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/services/broker-controller/internal/plan"
)

// waitingReasons are the kubelet's reasons of containers that it cannot start.
var waitingReasons = []string{
	"CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull",
	"ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable",
	"RunContainerError", "SignatureValidationFailed",
}

// rejections are the kubelet's reasons of Pods that failed before they started.
var rejections = []string{"NodeAffinity", "TopologyAffinityError", "UnexpectedAdmissionError"}

// blocked reports whether the Pod cannot be scheduled or started on its node at present, or whether
// the node rejected it.
func blocked(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodFailed:
		return slices.Contains(rejections, pod.Status.Reason) || strings.HasPrefix(pod.Status.Reason, "OutOf")
	case corev1.PodPending:
		return slices.ContainsFunc(pod.Status.Conditions, isUnschedulable) ||
			slices.ContainsFunc(pod.Status.InitContainerStatuses, cannotStart) ||
			slices.ContainsFunc(pod.Status.ContainerStatuses, cannotStart)
	}
	return false
}

func isUnschedulable(c corev1.PodCondition) bool {
	return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

func cannotStart(c corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && slices.Contains(waitingReasons, c.State.Waiting.Reason)
}

// startFailures remembers the nodes on which no broker started. A new leader starts without them,
// which costs one more try on each node.
type startFailures struct {
	mu sync.Mutex
	// byInstance maps the key of an Instance to its failures, by the name of the Pod.
	byInstance map[string]map[string]startFailure
}

type startFailure struct {
	plan.Failure

	pod  types.UID
	hash string
}

func newStartFailures() *startFailures {
	return &startFailures{byInstance: map[string]map[string]startFailure{}}
}

// of returns the failures of an Instance with this spec.
func (f *startFailures) of(instance, hash string) map[string]plan.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	failures := map[string]plan.Failure{}
	for pod, failure := range f.byInstance[instance] {
		if failure.hash == hash {
			failures[pod] = failure.Failure
		}
	}
	return failures
}

// add records a failure. Repeating the call for the same Pod has no effect.
func (f *startFailures) add(instance, hash string, pod *corev1.Pod, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byInstance[instance] == nil {
		f.byInstance[instance] = map[string]startFailure{}
	}
	previous := f.byInstance[instance][pod.Name]
	if previous.pod == pod.UID {
		return
	}
	if previous.hash != hash {
		previous.Count = 0
	}
	f.byInstance[instance][pod.Name] = startFailure{
		Failure: plan.Failure{At: now, Count: previous.Count + 1}, pod: pod.UID, hash: hash,
	}
}

// started removes the failures of a Pod.
func (f *startFailures) started(instance, pod string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byInstance[instance], pod)
}

// remove removes the failures of an Instance.
func (f *startFailures) remove(instance string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byInstance, instance)
}
