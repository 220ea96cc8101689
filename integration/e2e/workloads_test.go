package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workloadsOfConfiguration runs a ReplicaSet and a DaemonSet whose pods request any device of a
// Configuration, as the Deployment of the README does. A pod that is deleted is replaced.
func workloadsOfConfiguration(t *testing.T) {
	const configuration = "e2e-workloads"
	nodes := len(akri.Cluster.Nodes())
	apply(t, echoConfiguration(configuration, 4, "", "foo0", "foo1"))
	awaitTotalAllocatable(t, configuration, int64(2*nodes)) // one of each device on each node

	manifest := func(kind, name, fields string) string {
		return strings.NewReplacer(
			"kind: Deployment", "kind: "+kind, "  replicas: 2\n  strategy: {type: Recreate}\n", fields,
			"        resources:", "        readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}\n        resources:",
		).Replace(deployment(name, configuration, 2))
	}
	apply(t, manifest("ReplicaSet", "e2e-replicas", "  replicas: 2\n"))
	apply(t, manifest("DaemonSet", "e2e-daemons", ""))

	pods := awaitRunning(t, "e2e-replicas", 2)
	onNodes := map[string]bool{}
	for _, pod := range awaitRunning(t, "e2e-daemons", nodes) {
		onNodes[pod.Spec.NodeName] = true
		pods = append(pods, pod)
	}
	require.Len(t, onNodes, nodes, "nodes with a pod of the DaemonSet")
	for _, pod := range pods {
		ready := awaitReadyPod(t, "default", pod.Name)
		require.Contains(t, []string{"foo0", "foo1"}, query(t, ready).Env["DEBUG_ECHO_DESCRIPTION"])
	}

	for app, count := range map[string]int{"e2e-replicas": 2, "e2e-daemons": nodes} {
		former := awaitRunning(t, app, count)[0].Name
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), former, metav1.DeleteOptions{}))
		awaitRunningWithout(t, app, count, former)
	}
}
