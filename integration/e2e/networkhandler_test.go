package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
)

// handlerPod is the template of a Pod with a debugEcho handler on a node.
func handlerPod(node cluster.Node, env string) string {
	return fmt.Sprintf(`
metadata: {name: e2e-twin, namespace: default, labels: {app: e2e-handlers}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 5
  containers:
  - name: handler
    image: ghcr.io/akri-mesh/handler-debug-echo:dev
    imagePullPolicy: IfNotPresent
    env: [{name: %s}]
    volumeMounts: [{name: handlers, mountPath: /var/lib/akri}]
  volumes: [{name: handlers, hostPath: {path: /var/lib/akri, type: Directory}}]
`, node.Name(), env)
}

// handlerDeployment has handlers that serve on the network.
func handlerDeployment(node cluster.Node, replicas int) string {
	pod := handlerPod(node, "POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}")
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: e2e-handlers, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: e2e-handlers}}
  template:`, replicas) + strings.ReplaceAll(pod, "\n", "\n    ")
}

// moreHandlers runs debugEcho handlers next to that of the chart. Each finds all devices of a
// Configuration. A device that is deleted from the Configuration therefore leaves when each handler
// has sent a new list. For a handler that cannot be reached this takes the grace of five minutes,
// which is longer than the timeout of the test.
//
// The endpoints of the ended handlers affect all Configurations until the next scenario shortens
// the grace.
func moreHandlers(t *testing.T) {
	inOrder(t, replacedPods, twins)
}

// replacedPods replaces one of two Pods. The old address has no host any more, so the list of the
// new address replaces that of the old one.
func replacedPods(t *testing.T) {
	const name = "e2e-network"
	node := akri.Cluster.Nodes()[0]
	apply(t, handlerDeployment(node, 2))
	apply(t, echoConfiguration(name, 1, "", "bar0", "foo0", "foo1"))
	awaitHandlers(t, node, "debugEcho", active, active, active)
	awaitInventory(t, node, name, true, "bar0", "foo0", "foo1")

	// The Deployment creates the next Pod while this one terminates.
	deleted := awaitRunning(t, "e2e-handlers", 2)[0]
	pods := akri.Kubernetes.CoreV1().Pods("default")
	require.NoError(t, pods.Delete(t.Context(), deleted.Name, metav1.DeleteOptions{}))
	gone := awaitHandlers(t, node, "debugEcho", active, active, active, offline)[3]
	require.Equal(t, deleted.Status.PodIP+":10000", gone.GetEndpoint())
	// The handler that has ended cannot answer any more, so this waits until it is replaced.
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration(name, 1, "", "foo0", "foo1")))
	awaitInventory(t, node, name, true, "foo0", "foo1")
	awaitInstances(t, "default", name, name+"-8120fe", name+"-a19705")

	// Without Pods at new addresses, the devices stay.
	require.NoError(t, akri.ApplyText(t.Context(), handlerDeployment(node, 0)))
	awaitHandlers(t, node, "debugEcho", active, offline, offline, offline)
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration(name, 1, "", "foo0")))
	awaitInventory(t, node, name, false, "foo0", "foo1")
	require.NoError(t, akri.ApplyText(t.Context(), handlerDeployment(node, 2)))
	awaitInventory(t, node, name, true, "foo0")
	awaitInstances(t, "default", name, name+"-8120fe")
}

// twins stops one of two handlers with sockets of their own. Its devices stay until it has
// restarted.
func twins(t *testing.T) {
	const name = "e2e-twins"
	node := akri.Cluster.Nodes()[1]
	twin := "apiVersion: v1\nkind: Pod" + handlerPod(node, "AKRI_SOCKET_NAME, value: e2e-twin")
	apply(t, twin)
	apply(t, echoConfiguration(name, 1, "", "foo0", "foo1"))
	awaitHandlers(t, node, "debugEcho", active, active)
	awaitInventory(t, node, name, true, "foo0", "foo1")

	require.NoError(t, akri.DeleteText(t.Context(), twin))
	stopped := awaitHandlers(t, node, "debugEcho", active, offline)[1]
	require.Equal(t, "/var/lib/akri/e2e-twin.sock", stopped.GetEndpoint())
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration(name, 1, "", "bar0", "foo0")))
	awaitInventory(t, node, name, false, "bar0", "foo0", "foo1")

	require.NoError(t, akri.ApplyText(t.Context(), twin))
	awaitInventory(t, node, name, true, "bar0", "foo0")
}
