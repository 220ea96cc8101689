package controller

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/services/broker-controller/internal/render"
)

// brokerState is the state of a broker.
type brokerState int

const (
	// running: the broker runs.
	running brokerState = iota
	// completed: the Job has completed.
	completed
	// replaced: the next Pod is created soon.
	replaced
	// pending: the broker is failing if it stays in this state for StartTimeout.
	pending
	// recovering: the broker runs after failures. It is running if it stays so for StartTimeout.
	recovering
	// failing: the broker cannot run.
	failing
)

// broker is the state of a broker and, if it is failing or pending, the cause.
type broker struct {
	state brokerState
	// name of the Pod or the Job.
	name            string
	reason, message string
	// retry states when the broker is tried again.
	retry string
}

const (
	retryByAkri      = "Akri tries again at least every 5m"
	retryByKubelet   = "the kubelet tries again at least every 5m"
	retryByScheduler = "the scheduler tries again when a node or a Pod changes"
	noRetry          = "it is not tried again: delete the Job to run it again"

	reasonCrashLoop = "CrashLoopBackOff"

	maxCause  = 512
	maxCauses = 3
)

// validReason is the format of the reason of a condition and of an Event, which has at most 128
// bytes. The API server would refuse all conditions with another one, and a kubelet chooses that of
// its Pods.
var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)

// stateOfPod returns the state of a broker Pod, or of a Pod of a broker Job that has not ended.
func stateOfPod(pod *corev1.Pod) broker {
	b := broker{name: pod.Name}
	containers := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	switch {
	case pod.DeletionTimestamp != nil:
		b.state = replaced
	case pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending:
		b.ofContainers(pod, containers)
	case render.Attempt(pod) == 0:
		b.state = replaced
	default:
		b.fail(pod.Status.Reason, pod.Status.Message, retryByAkri)
		if container := terminated(containers); container != nil && pod.Status.Message == "" {
			b.message = endMessage(container)
		}
	}
	return b
}

func (b *broker) fail(reason, message, retry string) {
	b.set(failing, reason, message, retry)
}

func (b *broker) set(state brokerState, reason, message, retry string) {
	if !validReason.MatchString(reason) {
		reason = akriv0.ReasonBrokerFailed
	}
	b.state, b.reason, b.message, b.retry = state, reason, message, retry
}

// ofContainers sets the state of a Pod that is running or pending.
func (b *broker) ofContainers(pod *corev1.Pod, containers []corev1.ContainerStatus) {
	fails := func(c corev1.ContainerStatus) bool { return cannotStart(c) || isCrashLoop(c) }
	if i := slices.IndexFunc(containers, fails); i >= 0 {
		b.waitsFor(&containers[i])
		return
	}
	if pod.Status.Phase == corev1.PodRunning {
		if render.Attempt(pod) > 0 || slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool { return c.RestartCount > 1 }) {
			b.state = recovering
		}
		return
	}

	message := "the Pod is pending; see its Events"
	if container := explain.WaitsForImage(pod); container != nil {
		message = explain.WaitingForImage(container) + "; see the Events of the Pod"
	}
	b.set(pending, akriv0.ReasonNotStarted, message, retryByKubelet)
	for _, condition := range pod.Status.Conditions {
		if isUnschedulable(condition) {
			b.set(pending, condition.Reason, condition.Message, retryByScheduler)
		}
	}
}

func isCrashLoop(c corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == reasonCrashLoop
}

// waitsFor sets the cause. The reasons and messages of the restarts of a container alternate; the
// cause must not.
func (b *broker) waitsFor(container *corev1.ContainerStatus) {
	reason, message := explain.WhyWaiting(container.State.Waiting)
	if reason == reasonCrashLoop {
		message = endMessage(container)
	}
	b.fail(reason, message, retryByKubelet)
}

// terminated returns a container that has ended, or nil.
func terminated(containers []corev1.ContainerStatus) *corev1.ContainerStatus {
	for i := range containers {
		if lastEnd(&containers[i]) != nil {
			return &containers[i]
		}
	}
	return nil
}

func lastEnd(container *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if end := container.State.Terminated; end != nil {
		return end
	}
	return container.LastTerminationState.Terminated
}

func endMessage(container *corev1.ContainerStatus) string {
	if end := lastEnd(container); end != nil {
		return fmt.Sprintf("container %q ends with exit code %d (%s)", container.Name, end.ExitCode, end.Reason)
	}
	return fmt.Sprintf("container %q ends", container.Name)
}

// stateOfJob returns the state of a broker Job with its Pods.
func stateOfJob(job *batchv1.Job, pods []*corev1.Pod) broker {
	b := broker{name: job.Name, state: replaced}
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			b.state = completed
			return b
		case condition.Type == batchv1.JobFailed:
			b.fail(condition.Reason, condition.Message, noRetry)
			return b
		}
	}

	retried := false
	for _, pod := range pods {
		switch owner := metav1.GetControllerOf(pod); {
		case owner == nil || owner.UID != job.UID || pod.DeletionTimestamp != nil:
		case ended(pod):
			retried = true
		default:
			return stateOfPod(pod)
		}
	}
	if !retried {
		b.set(pending, akriv0.ReasonNotStarted, "the Job has no Pod; see its Events", "Kubernetes tries again")
	}
	return b
}

// brokersRunning returns the condition of all brokers of a Configuration.
func brokersRunning(brokers []broker) metav1.Condition {
	condition := metav1.Condition{Type: akriv0.ConditionBrokersRunning, Status: metav1.ConditionTrue, Reason: akriv0.ReasonAsExpected}
	count := map[brokerState]int{}
	var causes []*cause
	for _, b := range brokers {
		count[b.state]++
		if b.state == failing {
			causes = addCause(causes, b)
		}
	}

	condition.Message = fmt.Sprintf("%d of %d brokers run", count[running], len(brokers))
	if count[completed] > 0 {
		condition.Message += fmt.Sprintf(", %d completed", count[completed])
	}
	switch {
	case len(brokers) == 0:
		condition.Message = "no broker is expected, because no device is found"
	case len(causes) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, causes[0].reason
		for _, cause := range causes[:min(len(causes), maxCauses)] {
			condition.Message += "; " + cause.String()
		}
	case count[running]+count[completed] < len(brokers):
		condition.Status, condition.Reason = metav1.ConditionUnknown, akriv0.ReasonStarting
	}
	return condition
}

// cause is a reason why brokers cannot run, with the first of them.
type cause struct {
	broker

	others int
}

// addCause adds a failing broker to the cause with its reason.
func addCause(causes []*cause, b broker) []*cause {
	if i := slices.IndexFunc(causes, func(existing *cause) bool { return existing.reason == b.reason }); i >= 0 {
		causes[i].others++
		return causes
	}
	return append(causes, &cause{broker: b})
}

func (c *cause) String() string {
	name := c.name
	if c.others > 0 {
		name = fmt.Sprintf("%s and %d more", name, c.others)
	}
	return fmt.Sprintf("%s: %s: %s; %s", name, c.reason, clip(c.message), c.retry)
}

// clip shortens a message of Kubernetes. It does not split characters.
func clip(message string) string {
	if len(message) <= maxCause {
		return message
	}
	return strings.ToValidUTF8(message[:maxCause], "") + "…"
}
