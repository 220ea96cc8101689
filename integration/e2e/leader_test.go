package e2e_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

func leaderKilled(t *testing.T) {
	// The other values stay: with the agent, those of the handlers replace its Pods, and with them
	// the device plugins of the scenario beside this one.
	require.NoError(t, akri.Install(t.Context(), slices.Concat(valuesForAll(), []string{"broker-controller.replicas=2"})...))
	apply(t, echoConfiguration("e2e-leader", 2, broker, "foo0"))
	apply(t, echoConfiguration("e2e-once", 1, jobBroker, "foo0"))
	awaitBrokers(t, "default", "e2e-leader", 2)
	awaitJobPod(t, "e2e-once", 0)
	before, once := observe(t, "e2e-leader"), observe(t, "e2e-once")

	first := leader(t)
	killed := time.Now()
	killLeader(t, first)
	const deleted = "node-a-e2e-leader-8120fe-pod"
	pods := akri.Kubernetes.CoreV1().Pods("default")
	require.NoError(t, pods.Delete(t.Context(), deleted, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	awaitPod(t, deleted, "the new leader to recreate the broker", func(*corev1.Pod) bool { return true })
	t.Logf("the new leader recreated the broker %s after the kill", time.Since(killed).Round(time.Millisecond))
	require.NotEqual(t, first, leader(t))

	awaitBrokers(t, "default", "e2e-leader", 2)
	after := observe(t, "e2e-leader")
	require.Equal(t, before.instances, after.instances)
	const kept = "node-b-e2e-leader-8120fe-pod"
	require.Equal(t, before.brokers[kept], after.brokers[kept])
	require.Equal(t, once, observe(t, "e2e-once"), "a Job must not run again")
	awaitServiceReady(t, "broker-controller")
	awaitWebhook(t)
}

// leader is the identity in the Lease: `<pod>_<uid>`.
func leader(t *testing.T) string {
	t.Helper()
	lease, err := akri.Kubernetes.CoordinationV1().Leases(mesh.Namespace).Get(t.Context(), "akri-broker-controller", metav1.GetOptions{})
	require.NoError(t, err)
	return *lease.Spec.HolderIdentity
}

// killLeader kills the leader and deletes its pod, so that it does not restart with the same
// identity.
func killLeader(t *testing.T, identity string) {
	t.Helper()
	name, _, _ := strings.Cut(identity, "_")
	pods := akri.Kubernetes.CoreV1().Pods(mesh.Namespace)
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	node, err := akri.Cluster.Node(pod.Spec.NodeName)
	require.NoError(t, err)
	require.NoError(t, node.KillContainer(t.Context(), pod.Namespace, pod.Name, "broker-controller", syscall.SIGKILL))
	require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}
