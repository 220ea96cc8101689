package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

// quotaOfDevices limits the devices of a namespace by the name of the extended resource, as with
// device plugins.
func quotaOfDevices(t *testing.T) {
	const namespace = "e2e-devices"
	apply(t, inNamespace(namespace, echoConfiguration("e2e-devices", 3, "", "foo0"), "")+`---
apiVersion: v1
kind: ResourceQuota
metadata: {name: one, namespace: `+namespace+`}
spec: {hard: {requests.akri.sh/e2e-devices: "1"}}
`)
	// kube-controller-manager counts after the Pod exists or is deleted, and the API server refuses
	// Pods by that count.
	awaitNothingUsed := func() {
		awaitObject(t, "the quota to be unused", akri.Kubernetes.CoreV1().ResourceQuotas(namespace), "one", func(quota *corev1.ResourceQuota) error {
			if used, counted := quota.Status.Used["requests.akri.sh/e2e-devices"]; !counted || !used.IsZero() {
				return fmt.Errorf("status.used is %v", quota.Status.Used)
			}
			return nil
		})
	}

	awaitNothingUsed()
	first, second := podIn(namespace, "first"), podIn(namespace, "second")
	apply(t, first)
	awaitReadyPod(t, namespace, "first")

	err := akri.ApplyText(t.Context(), second)
	require.ErrorContains(t, err, "exceeded quota: one")

	require.NoError(t, akri.DeleteText(t.Context(), first))
	awaitNothingUsed()
	apply(t, second)
	awaitReadyPod(t, namespace, "second")
}

func podIn(namespace, name string) string {
	return strings.Replace(ownPod(name, "e2e-devices"), "namespace: default", "namespace: "+namespace, 1)
}

// initContainerWithDevice runs a Pod whose init container requests the only slot of the device, and
// whose container requests it, too. The containers have it one after the other, as with device
// plugins.
func initContainerWithDevice(t *testing.T) {
	const instance = "e2e-init-8120fe"
	apply(t, echoConfiguration("e2e-init", 1, "", "foo0"))
	awaitSlice(t, instance, true)
	apply(t, ownPod("init", "e2e-init")+`
  initContainers:
  - name: first
    image: ghcr.io/akri-mesh/registrar:dev
    imagePullPolicy: IfNotPresent
    args: [--version]
    resources: {limits: {"akri.sh/e2e-init": "1"}}
`)
	pod := awaitReadyPod(t, "default", "init")
	require.Equal(t, "foo0", query(t, pod).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])
	requireClaims(t, instance, 1)

	mappings := pod.Status.ExtendedResourceClaimStatus.RequestMappings
	containers := map[string]string{}
	for _, mapping := range mappings {
		containers[mapping.ContainerName] = mapping.RequestName
	}
	require.Len(t, containers, 2)
	require.Equal(t, containers["first"], containers["main"], "the requests of both containers")
}

// pendingPriority runs a Pod with a higher priority than the one that has the only slot. It waits:
// kube-scheduler preempts no Pod for a device of a ResourceClaim. See preemptedPod.
func pendingPriority(t *testing.T) {
	apply(t, echoConfiguration("e2e-priority", 1, "", "foo0"))
	apply(t, ownPod("priority-low", "e2e-priority"))
	low := awaitReadyPod(t, "default", "priority-low")
	applyHighPriority(t, "e2e-priority")
	awaitPod(t, "priority-high", "the result of the preemption", func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && strings.Contains(c.Message, "preemption:")
		})
	})
	requireUnchanged(t, low)

	require.NoError(t, akri.DeleteText(t.Context(), ownPod("priority-low", "e2e-priority")))
	awaitReadyPod(t, "default", "priority-high")
}

// preemptedPod does the same with device plugins: the Pod with the lower priority is deleted, and
// the other one gets its slot.
func preemptedPod(t *testing.T) {
	onlyDevicePlugins(t, "kube-scheduler preempts no Pod for a device of a ResourceClaim")
	apply(t, echoConfiguration("e2e-priority", 1, "", "foo0"))
	apply(t, ownPod("priority-low", "e2e-priority-8120fe"))
	awaitReadyPod(t, "default", "priority-low")
	applyHighPriority(t, "e2e-priority-8120fe")
	awaitRemoved[corev1.Pod](t, "the Pod with the lower priority", akri.Kubernetes.CoreV1().Pods("default"), metav1.ListOptions{FieldSelector: "metadata.name=priority-low"})
	awaitPod(t, "priority-high", "pod priority-high to have the device", mesh.Ready)
}

// applyHighPriority creates the Pod priority-high, which requests the resource.
func applyHighPriority(t *testing.T, resource string) {
	t.Helper()
	apply(t, `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: e2e-high}
value: 1000
---`+strings.Replace(ownPod("priority-high", resource), "spec:", "spec:\n  priorityClassName: e2e-high", 1))
}
