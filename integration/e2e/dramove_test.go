package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// movedNode moves a node to Dynamic Resource Allocation and back while Pods use devices there. They
// keep running and keep their slots, also when the kubelet or a container restarts. The slots are
// free when the Pods end. The slots of both forms never exceed the capacity.
func movedNode(t *testing.T) {
	const instance, initialized = "e2e-moves-8120fe", "e2e-moves-init-8120fe"
	node, other := akri.Cluster.Nodes()[1], akri.Cluster.Nodes()[0]
	setResources(t, node, akriv0.ResourcesDevicePlugin)
	t.Cleanup(func() { setResources(t, node, "") })
	apply(t, echoConfiguration("e2e-moves-init", 1, "", "foo0"))
	apply(t, echoConfiguration("e2e-moves", 3, broker, "foo0"))
	awaitAllocatable(t, node.Name(), "e2e-moves", 1)
	apply(t, selecting(node, ownPod("moves-plugin", "e2e-moves")))
	apply(t, selecting(node, strings.NewReplacer("  containers:", `  initContainers:
  - name: init
    image: ghcr.io/akri-mesh/registrar:dev
    imagePullPolicy: IfNotPresent
    args: ["--version"]
    resources: {limits: {"akri.sh/`+initialized+`": "1"}}
  containers:`, `limits: {"akri.sh/": "1"}`, "{}").Replace(ownPod("moves-init", ""))))
	plugin := awaitReadyPod(t, "default", "moves-plugin")
	awaitReadyPod(t, "default", "moves-init")
	requireHolders(t, initialized, node.Name())
	before := podUIDs(awaitBrokers(t, "default", "e2e-moves", 2))
	requireHolders(t, instance, "D:"+other.Name(), node.Name(), "C:"+node.Name())

	setResources(t, node, "")
	apply(t, selecting(node, ownPod("moves-claim", "e2e-moves")))
	awaitUnschedulable(t, "moves-claim")
	require.NoError(t, node.KillKubelet(t.Context()))
	require.NoError(t, node.StartKubelet(t.Context()))
	requireHolders(t, initialized, node.Name())
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "moves-init", metav1.DeleteOptions{}))
	requireUnchanged(t, plugin)
	require.NoError(t, node.KillContainer(t.Context(), "default", "moves-plugin", "main", syscall.SIGKILL))
	awaitRestartedContainer(t, plugin)
	require.Equal(t, "foo0", environment(t, plugin, "main")[description])
	requireHolders(t, instance, "D:"+other.Name(), node.Name(), "C:"+node.Name())
	awaitUnschedulable(t, "moves-claim")

	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "moves-plugin", metav1.DeleteOptions{}))
	claim := awaitReadyPod(t, "default", "moves-claim")
	requireHolders(t, instance, "D:"+other.Name(), node.Name(), "D:"+node.Name())
	awaitFree(t, initialized)

	setResources(t, node, akriv0.ResourcesDevicePlugin)
	requireUnchanged(t, claim)
	requireHolders(t, instance, "D:"+other.Name(), node.Name(), "D:"+node.Name())
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "moves-claim", metav1.DeleteOptions{}))
	requireHolders(t, instance, "D:"+other.Name(), node.Name())
	apply(t, selecting(node, ownPod("moves-returned", "e2e-moves")))
	awaitReadyPod(t, "default", "moves-returned")
	requireHolders(t, instance, "D:"+other.Name(), node.Name(), "C:"+node.Name())

	brokers := awaitBrokers(t, "default", "e2e-moves", 2)
	require.Equal(t, before, podUIDs(brokers))
	for _, pod := range brokers {
		requireUnchanged(t, &pod)
	}
}

// requireHolders waits until the slots of the Instance have these holders, as slotHolders returns
// them.
func requireHolders(t *testing.T, instance string, want ...string) {
	t.Helper()
	awaitUsage(t, instance, fmt.Sprintf("to be held by %v", want), func(usage map[string]string) bool {
		return fmt.Sprint(slices.Sorted(slices.Values(slotHolders(usage)))) == fmt.Sprint(slices.Sorted(slices.Values(want)))
	})
}

// awaitRestartedContainer waits until the first container of the Pod is restarted and ready.
func awaitRestartedContainer(t *testing.T, before *corev1.Pod) {
	t.Helper()
	awaitPodIn(t, before.Namespace, before.Name, "restart of "+before.Name, func(pod *corev1.Pod) bool {
		return pod.UID == before.UID && pod.Status.ContainerStatuses[0].RestartCount == 1 && mesh.Ready(pod)
	})
}

// agentWithClaims changes the agent to Dynamic Resource Allocation and back while a Pod uses a
// device.
func agentWithClaims(t *testing.T) {
	onlyDevicePlugins(t, "the agent moves from device plugins")
	const instance = "e2e-agent-claims-8120fe"
	apply(t, echoConfiguration("e2e-agent-claims", 2, "", "foo0"))
	apply(t, ownPod("agent-plugin", "e2e-agent-claims"))
	before := awaitReadyPod(t, "default", "agent-plugin")
	require.NoError(t, akri.Install(t.Context(), "global.resources=dra"))
	// Until a kubelet reports that it has no device, the scheduler sends it Pods without claims.
	for _, node := range akri.Cluster.Nodes() {
		awaitAllocatable(t, node.Name(), "e2e-agent-claims", 0)
	}
	apply(t, ownPod("agent-claim", "e2e-agent-claims"))
	claim := awaitReadyPod(t, "default", "agent-claim")
	requireUnchanged(t, before)
	requireHolders(t, instance, "C:"+before.Spec.NodeName, "D:"+claim.Spec.NodeName)
	for _, name := range []string{"agent-plugin", "agent-claim"} {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	awaitFree(t, instance)
	require.NoError(t, akri.Install(t.Context()))
	apply(t, ownPod("agent-returned", "e2e-agent-claims"))
	returned := awaitReadyPod(t, "default", "agent-returned")
	requireHolders(t, instance, "C:"+returned.Spec.NodeName)
}
