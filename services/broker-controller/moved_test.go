package brokercontroller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/kube/kubetest"
	brokercontroller "akri.sh/services/broker-controller"
)

const (
	podOnA = "node-a-echo-8120fe-pod"
	podOnB = "node-b-echo-8120fe-pod"
)

// block sets the status that the scheduler or the kubelet sets for a Pod that cannot start.
func (e *testEnv) block(name string, status corev1.PodStatus) {
	e.Helper()
	kubetest.EditStatus(e, e.Pods.In(e.namespace), name, func(pod *corev1.Pod) { pod.Status = status })
}

var (
	unschedulable = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}}
	imageMissing = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "broker", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}}}
	rejected = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"}
)

func soon(c *brokercontroller.Config) { c.BrokerStartTimeout = time.Second }

func TestBrokerThatCannotStartIsMoved(t *testing.T) {
	for name, status := range map[string]corev1.PodStatus{
		"unschedulable": unschedulable, "image missing": imageMissing, "rejected": rejected,
		"device refused": {Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			e.start(soon)
			e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a", "node-b")
			e.eventuallyNames(e.podNames, podOnA)
			e.block(podOnA, status)
			e.eventuallyNames(e.podNames, podOnB)
			e.hasEvent("echo-8120fe", "BrokerRemoved", "Removed Pod "+podOnA+": it could not start on its node within 1s. Another node gets a broker.")

			// A running broker is never moved.
			e.setPhase(corev1.PodRunning, podOnB)
			e.waitForConfigurations()
			require.Equal(t, []string{podOnB}, e.podNames())
		})
	}
}

// The slot of the old Pod can be in use until it is gone.
func TestMoveWaitsForTheOldPod(t *testing.T) {
	e := newTestEnv(t)
	e.start(soon)
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a", "node-b")
	e.eventuallyNames(e.podNames, podOnA)
	e.bind("node-a", podOnA)
	e.block(podOnA, imageMissing)
	e.eventually(func() bool { return e.pod(podOnA).DeletionTimestamp != nil }, "the deletion")
	e.waitForConfigurations()
	require.Equal(t, []string{podOnA}, e.podNames())
	e.forceDelete(podOnA)
	e.eventuallyNames(e.podNames, podOnB)
}

func TestRolloutContinuesAfterAMove(t *testing.T) {
	e := newTestEnv(t)
	e.start(soon)
	c := e.configuration("echo", podsOnly)
	e.instance(c, "8120fe", 1, "node-a", "node-b")
	e.instance(c, "d2981e", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-d2981e-pod", podOnA)
	e.setPhase(corev1.PodRunning, "echo-d2981e-pod", podOnA)
	e.edit("echo", strings.Replace(podsOnly, "v1", "v2", 1))
	isNew := func(pod string) bool {
		containers := e.pod(pod).Spec.Containers
		return len(containers) > 0 && containers[0].Image == "v2"
	}
	e.eventually(func() bool { return isNew("echo-d2981e-pod") || isNew(podOnA) }, "the first update")
	if isNew("echo-d2981e-pod") {
		e.setPhase(corev1.PodRunning, "echo-d2981e-pod")
		e.eventually(func() bool { return isNew(podOnA) }, "the second update")
	}
	e.block(podOnA, unschedulable)
	e.eventually(func() bool { return isNew(podOnB) }, "the move")
	e.setPhase(corev1.PodRunning, podOnB)
	e.eventually(func() bool { return isNew("echo-d2981e-pod") }, "the other update")
}
