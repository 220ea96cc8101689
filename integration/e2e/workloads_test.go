package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload returns a ReplicaSet or DaemonSet whose pods request one device of the resource each.
func workload(kind, name, resource, fields string) string {
	return strings.NewReplacer(
		"kind: Deployment", "kind: "+kind, "  replicas: 1\n  strategy: {type: Recreate}\n", fields,
		"        resources:", "        readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}\n        resources:",
	).Replace(deployment(name, resource, 1))
}

// workloadsOfConfiguration runs a ReplicaSet and a DaemonSet whose pods request any device of a
// Configuration, as the Deployment of the README does. A pod that is deleted is replaced.
func workloadsOfConfiguration(t *testing.T) {
	const configuration = "e2e-workloads"
	nodes := len(akri.Cluster.Nodes())
	apply(t, echoConfiguration(configuration, 4, "", "foo0", "foo1"))
	awaitTotalAllocatable(t, configuration, int64(2*nodes)) // one of each device on each node

	apply(t, workload("ReplicaSet", "e2e-replicas", configuration, "  replicas: 2\n"))
	apply(t, workload("DaemonSet", "e2e-daemons", configuration, ""))

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

// predictedNames applies workloads that request a device by the name of its Instance before the
// device is discovered, as a repository of manifests does. They run after the discovery.
func predictedNames(t *testing.T) {
	const configuration, replicas, daemons, job = "e2e-predicted", "predicted-replicas", "predicted-daemons", "predicted-job"
	const deployed = "predicted-deployment"
	device, nodes := instanceName(configuration, "foo0", "", true), len(akri.Cluster.Nodes())
	apply(t, workload("ReplicaSet", replicas, device, "  replicas: 1\n"))
	apply(t, workload("DaemonSet", daemons, device, ""))
	apply(t, workload("Deployment", deployed, device, "  replicas: 1\n"))
	apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: `+job+`, namespace: default}
spec:
  template:
    metadata: {labels: {app: `+job+`}}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: ghcr.io/akri-mesh/registrar:dev
        imagePullPolicy: IfNotPresent
        args: ["--version"]
        resources: {limits: {"akri.sh/`+device+`": "1"}}
`)
	for app, count := range map[string]int{replicas: 1, daemons: nodes, deployed: 1, job: 1} {
		awaitInsufficient(t, app, device, count)
	}

	apply(t, echoConfiguration(configuration, 2*(nodes+3), "", "foo0"))
	pods := slices.Concat(awaitRunning(t, replicas, 1), awaitRunning(t, daemons, nodes), awaitRunning(t, deployed, 1))
	for _, pod := range pods {
		ready := awaitReadyPod(t, "default", pod.Name)
		require.Equal(t, "foo0", query(t, ready).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])
	}
	awaitObject(t, "the completed Job", akri.Kubernetes.BatchV1().Jobs("default"), job, func(job *batchv1.Job) error {
		if job.Status.Succeeded != 1 {
			return fmt.Errorf("its status is %+v", job.Status)
		}
		return nil
	})
}
