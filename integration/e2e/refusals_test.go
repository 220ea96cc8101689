package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fullDeployment updates a Deployment whose Pods use all slots of a device, with the strategy of
// the sample: a Pod ends before the next one starts. No Pod is refused.
func fullDeployment(t *testing.T) {
	const name, instance = "full-device", "full-device-8120fe"
	apply(t, sample(t, "deployment-instance-level.yaml", "deployment-instance-level", name, "instance-level", name, "replicas: 1", "replicas: 2"))
	pods := follow(t, name)
	before := map[string]bool{}
	for _, pod := range awaitRunning(t, name, 2) {
		before[pod.Name] = true
	}
	awaitTotalAllocatable(t, instance, 2) // the scheduler has the kubelets' new status
	rejected := len(pods.rejections())

	_, err := akri.Kubectl(t.Context(), "", "rollout", "restart", "deployment", name)
	require.NoError(t, err)
	_, err = akri.Kubectl(t.Context(), "", "rollout", "status", "deployment", name, fmt.Sprintf("--timeout=%s", timeout))
	require.NoError(t, err)
	for _, pod := range awaitRunning(t, name, 2) {
		require.NotContains(t, before, pod.Name)
	}
	require.Len(t, pods.rejections(), rejected)
}

const jobOnNode = `
apiVersion: batch/v1
kind: Job
metadata: {name: refused, namespace: default}
spec:
  backoffLimit: 2
  podFailurePolicy:
    rules:
    - {action: Ignore, onPodConditions: [{type: DisruptionTarget}]}
    - {action: FailJob, onExitCodes: {operator: NotIn, values: [0]}}
  template:
    metadata: {labels: {app: refused}}
    spec:
      nodeName: %s
      restartPolicy: Never
      containers:
      - name: main
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: IfNotPresent
        args: [--once]
        resources: {limits: {"akri.sh/refused-8120fe": "1"}}
`

// refusedJob runs a Job whose first Pod is refused. No rule of a policy for failed Pods matches
// that Pod, so that it counts as a failure. Kubernetes creates the next one ten seconds later.
func refusedJob(t *testing.T) {
	onlyDevicePlugins(t, "the kubelet refuses a Pod")
	holder := ownPod("refused-holder", "refused-8120fe")
	apply(t, echoConfiguration("refused", 1, "", "foo0"))
	awaitTotalAllocatable(t, "refused-8120fe", 2)
	apply(t, onNode(akri.Cluster.Nodes()[0], holder))
	awaitReadyPod(t, "default", "refused-holder")

	apply(t, fmt.Sprintf(jobOnNode, akri.Cluster.Nodes()[1].Name()))
	jobs := akri.Kubernetes.BatchV1().Jobs("default")
	awaitObject(t, "a refused Pod of the Job", jobs, "refused", func(job *batchv1.Job) error {
		if job.Status.Failed == 0 {
			return fmt.Errorf("the status is %+v", job.Status)
		}
		return nil
	})
	pods, err := akri.Kubernetes.CoreV1().Pods("default").List(t.Context(), ofApp("refused"))
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	first := pods.Items[0]
	require.Equal(t, "UnexpectedAdmissionError", first.Status.Reason)
	require.Empty(t, first.Status.ContainerStatuses)
	for _, condition := range first.Status.Conditions {
		require.NotEqual(t, corev1.DisruptionTarget, condition.Type)
	}

	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "refused-holder", metav1.DeleteOptions{}))
	awaitObject(t, "completion of the Job", jobs, "refused", func(job *batchv1.Job) error {
		for _, condition := range job.Status.Conditions {
			require.NotEqual(t, batchv1.JobFailed, condition.Type, condition.Message)
		}
		if job.Status.Succeeded == 0 {
			return fmt.Errorf("the status is %+v", job.Status)
		}
		return nil
	})
	pods, err = akri.Kubernetes.CoreV1().Pods("default").List(t.Context(), ofApp("refused"))
	require.NoError(t, err)
	var all []string
	for _, pod := range pods.Items {
		all = append(all, fmt.Sprintf("%s after %s", pod.Status.Phase, pod.CreationTimestamp.Sub(first.CreationTimestamp.Time).Round(time.Second)))
	}
	t.Log(strings.Join(all, ", "))
}
