package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// defaultDeletions is how often each pod is deleted unless AKRI_E2E_DELETIONS is set.
const defaultDeletions = 5

// recreatedPods repeatedly deletes the pod that holds the only slot of a device: one pod requests
// the Instance and another the Configuration. Both nodes see both devices.
func recreatedPods(t *testing.T) {
	onlyDevicePlugins(t, "the reason of a release, idle or unconfirmed")
	deletions := repetitions(t, "AKRI_E2E_DELETIONS", defaultDeletions)
	apply(t, echoConfiguration("e2e-turn-i", 1, "", "foo0"))
	apply(t, echoConfiguration("e2e-turn-c", 1, "", "foo0"))
	for workload, used := range map[string]struct{ resource, instance string }{
		"by-instance":      {"e2e-turn-i-8120fe", "e2e-turn-i-8120fe"},
		"by-configuration": {"e2e-turn-c", "e2e-turn-c-8120fe"},
	} {
		awaitTotalAllocatable(t, used.resource, 2)
		t.Run(workload, func(t *testing.T) {
			t.Parallel()
			recreate(t, workload, used.resource, used.instance, deletions)
		})
	}
}

// recreate checks that the kubelet admits each new pod, although the slot is recorded as held, and
// that the slot is released because the kubelet does not list a pod that uses it any more.
//
// If the API server is slow, the slot is released before the next pod is placed. Both nodes then
// offer the device until one of them reserves the slot. The scheduler learns of that with the next
// status of the other node, and until then may place pods there.
func recreate(t *testing.T, workload, resource, instance string, count int) {
	t.Helper()
	pods := follow(t, workload)
	manifest := deployment(workload, resource, 1)
	apply(t, manifest)
	previous := awaitRunning(t, workload, 1)[0]
	awaitTotalAllocatable(t, resource, 1) // the scheduler has the kubelets' new status
	for range count {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), previous.Name, metav1.DeleteOptions{}))
		previous = awaitOther(t, workload, previous.Name)
	}
	slot := akriv0.SlotName(instance, 0)
	if released := releases(t, slot); len(released) > 0 {
		t.Logf("the slot was released between two pods: %v; rejected: %s", released, pods.summary())
	} else {
		require.Empty(t, pods.rejections(), "pods that the kubelet rejected, although the slot was never released")
	}

	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	awaitFree(t, instance)
	reasons := releases(t, slot)
	require.Positive(t, reasons["idle"])
	require.Len(t, reasons, 1, "%v", reasons)
}

// awaitOther waits until the only pod of the workload is another one.
func awaitOther(t *testing.T, workload, previous string) corev1.Pod {
	t.Helper()
	return awaitRunningWithout(t, workload, 1, previous)[0]
}

// crowdedDevice runs more pods on two nodes than the device's capacity.
func crowdedDevice(t *testing.T) {
	onlyDevicePlugins(t, "the kubelet refuses Pods")
	apply(t, echoConfiguration("e2e-crowd", 3, "", "foo0"))
	awaitTotalAllocatable(t, "e2e-crowd-8120fe", 6)
	pods := follow(t, "crowd")
	apply(t, deployment("crowd", "e2e-crowd-8120fe", 5))
	awaitRunning(t, "crowd", 3)
	awaitTotalAllocatable(t, "e2e-crowd-8120fe", 3)
	running := awaitRunning(t, "crowd", 3)
	t.Logf("rejected before the node status was updated: %s", pods.summary())
	for range 3 {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), running[0].Name, metav1.DeleteOptions{}))
		running = awaitRunningWithout(t, "crowd", 3, running[0].Name)
		require.Len(t, slotHolders(instances(t, "default", "e2e-crowd")[0].Spec.DeviceUsage), 3)
	}
	t.Logf("rejected in total: %s", pods.summary())
}
