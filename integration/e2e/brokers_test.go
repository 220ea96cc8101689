package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

const servicesSpec = `
  instanceServiceSpec: {type: ClusterIP, ports: [{name: http, port: 80, targetPort: 8083}]}
  configurationServiceSpec: {type: ClusterIP, ports: [{name: http, port: 80, targetPort: 8083}]}
`

const jobBroker = `
    brokerJobSpec:
      backoffLimit: 5
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: broker
            image: ghcr.io/akri-mesh/sample-broker:dev
            imagePullPolicy: IfNotPresent
            ports: [{containerPort: 8083}]
            readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}
            resources: {limits: {"{{PLACEHOLDER}}": "1"}}`

func rejectedByWebhook(t *testing.T) {
	manifest := echoConfiguration("e2e-mistakes", 1, broker, "foo0")
	manifest = strings.ReplaceAll(manifest, "imagePullPolicy", "imagePullPolcy")
	manifest = strings.ReplaceAll(manifest, `limits: {"{{PLACEHOLDER}}": "1"}`, `limits: {cpu: lots, "{{ PLACEHOLDER }}": "1"}`)
	var err error
	await(t, "the webhook to reject a mistake", func(ctx context.Context) error {
		if _, err = akri.Kubectl(ctx, manifest, "apply", "--dry-run=server", "-f", "-"); err == nil {
			return fmt.Errorf("the mistake is accepted")
		}
		return nil
	})
	for _, want := range []string{
		`The Configuration "e2e-mistakes" is invalid`,
		`spec.brokerSpec.brokerPodSpec.containers[0].imagePullPolcy: Forbidden: unknown field`,
		`spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[cpu]: Invalid value: "lots"`,
		`"{{ PLACEHOLDER }}": is not a resource name; use "{{PLACEHOLDER}}" for the device`,
	} {
		require.ErrorContains(t, err, want)
	}
	output, err := akri.Kubectl(t.Context(), "", "get", "akric", "--all-namespaces", "-o", "name")
	require.NoError(t, err)
	require.NotContains(t, output, "e2e-mistakes")
}

func deletedBroker(t *testing.T) {
	apply(t, echoConfiguration("e2e-deleted", 2, broker, "foo0"))
	before := awaitBrokers(t, "default", "e2e-deleted", 2)
	pods := akri.Kubernetes.CoreV1().Pods("default")
	started := time.Now()
	require.NoError(t, pods.Delete(t.Context(), before[0].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	awaitNextBroker(t, &before[0])
	t.Logf("a deleted broker is replaced after %s", time.Since(started).Round(time.Millisecond))
	after := podUIDs(awaitBrokers(t, "default", "e2e-deleted", 2))
	require.Equal(t, string(before[1].UID), after[before[1].Name], "the other broker must not change")
}

func servicesOfBrokers(t *testing.T) {
	apply(t, echoConfiguration("e2e-services", 2, broker, "foo0", "foo1")+servicesSpec)
	running := awaitBrokers(t, "default", "e2e-services", 4)
	client := running[0]
	seen := map[string]bool{}
	await(t, "responses of all brokers through the Service of the Configuration", func(ctx context.Context) error {
		pod, err := queryService(ctx, &client, "e2e-services-svc")
		seen[pod] = true
		if err == nil && len(seen) < len(running) {
			err = fmt.Errorf("responses came from %v", seen)
		}
		return err
	})
	// kube-proxy updates one Service after the other.
	await(t, "a response through the Service of an Instance", func(ctx context.Context) error {
		_, err := queryService(ctx, &client, "e2e-services-8120fe-svc")
		return err
	})
	seen = map[string]bool{}
	for range 10 {
		pod, err := queryService(t.Context(), &client, "e2e-services-8120fe-svc")
		require.NoError(t, err)
		seen[pod] = true
	}
	for pod := range seen {
		require.Contains(t, pod, "-e2e-services-8120fe-pod")
	}
}

// namesOfDevices runs brokers whose spec names a ConfigMap and a Secret by the name of the
// Instance. Each broker gets those of its device, and the Service of each device has the name in an
// annotation.
func namesOfDevices(t *testing.T) {
	const name = "e2e-names"
	settings := map[string]string{} // by the name of the Instance
	for _, device := range []string{"foo0", "foo1"} {
		instance := instanceName(name, device, "", true)
		settings[instance] = "of-" + device
		apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings-%[1]s, namespace: default}
data: {SETTING: %[2]s}
---
apiVersion: v1
kind: Secret
metadata: {name: e2e-names-secret-%[1]s, namespace: default}
stringData: {SECRET: secret-%[2]s}
`, instance, settings[instance]))
	}
	named := broker + `
        envFrom:
        - {prefix: DEBUG_ECHO_, configMapRef: {name: settings-$(AKRI_INSTANCE)}}
        - {prefix: DEBUG_ECHO_, secretRef: {name: $(AKRI_CONFIGURATION)-secret-$(AKRI_INSTANCE)}}`
	apply(t, echoConfiguration(name, 1, named, "foo0", "foo1")+`
  instanceServiceSpec: {type: ClusterIP, ports: [{name: http, port: 80, targetPort: 8083}]}
  instanceServiceMetadata: {annotations: {example.com/host: $(AKRI_INSTANCE).example.com}}
`)

	for _, pod := range awaitBrokers(t, "default", name, len(settings)) {
		instance := pod.Labels[mesh.InstanceLabel]
		variables := query(t, &pod).Env
		require.Equal(t, settings[instance], variables["DEBUG_ECHO_SETTING"])
		require.Equal(t, "secret-"+settings[instance], variables["DEBUG_ECHO_SECRET"])

		awaitService(t, "default", instance+"-svc", true)
		service, err := akri.Kubernetes.CoreV1().Services("default").Get(t.Context(), instance+"-svc", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, instance+".example.com", service.Annotations["example.com/host"])
	}
}

func failingJob(t *testing.T) {
	apply(t, echoConfiguration("e2e-job", 1, jobBroker, "foo0")+servicesSpec)
	for failures, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM} {
		pod := awaitJobPod(t, "e2e-job", failures)
		awaitService(t, "default", "e2e-job-8120fe-svc", true)
		await(t, "a response of the Job through its Service", func(ctx context.Context) error {
			_, err := queryService(ctx, pod, "e2e-job-8120fe-svc")
			return err
		})
		node, err := akri.Cluster.Node(pod.Spec.NodeName)
		require.NoError(t, err)
		require.NoError(t, node.KillContainer(t.Context(), pod.Namespace, pod.Name, "broker", signal))
	}
	jobs := akri.Kubernetes.BatchV1().Jobs("default")
	var completed types.UID
	awaitObjects(t, "the Job to succeed", jobs, ofConfiguration("e2e-job"), func(found []batchv1.Job) error {
		require.Len(t, found, 1)
		completed = found[0].UID
		if status := found[0].Status; status.Succeeded != 1 || status.Failed != 2 {
			return fmt.Errorf("%d Pods succeeded and %d failed", status.Succeeded, status.Failed)
		}
		return nil
	})
	awaitService(t, "default", "e2e-job-8120fe-svc", false)

	// Another edit does not run it again. It would have run before the Job of the new device
	// exists.
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-job", 1, jobBroker, "foo0", "foo1")+servicesSpec))
	awaitInstances(t, "default", "e2e-job", "e2e-job-8120fe", "e2e-job-a19705")
	awaitJobs(t, "e2e-job", 2) // one for the new device
	list, err := jobs.List(t.Context(), metav1.ListOptions{LabelSelector: "akri.sh/instance=e2e-job-8120fe"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, completed, list.Items[0].UID)
}

// awaitJobPod waits for a ready Pod of the Job after the given number of failed ones.
func awaitJobPod(t *testing.T, configuration string, failures int) (ready *corev1.Pod) {
	t.Helper()
	what := fmt.Sprintf("the Job's Pod number %d", failures+1)
	awaitObjects(t, what, akri.Kubernetes.CoreV1().Pods("default"), ofConfiguration(configuration), func(pods []corev1.Pod) error {
		failed := 0
		ready = nil
		for i := range pods {
			switch {
			case pods[i].Status.Phase == corev1.PodFailed:
				failed++
			case mesh.Ready(&pods[i]):
				ready = &pods[i]
			}
		}
		if ready == nil || failed != failures {
			return fmt.Errorf("%d of %d Pods have failed", failed, len(pods))
		}
		return nil
	})
	return ready
}

// runningContainers returns the containers that are reported as running, by id.
func runningContainers(pods []corev1.Pod) map[string]string {
	running := map[string]string{}
	for _, pod := range pods {
		for _, container := range pod.Status.ContainerStatuses {
			if container.State.Running != nil {
				running[container.ContainerID] = pod.Name + "/" + container.Name
			}
		}
	}
	return running
}

// lostAndOther returns a node, if possible one without broker-controller, which states the loss,
// and the other one. Earlier scenarios can leave a Pod of broker-controller on each node for a
// while.
func lostAndOther(t *testing.T) (lost, other cluster.Node) {
	t.Helper()
	nodes := akri.Cluster.Nodes()
	if hasPod(t, nodes[0].Name(), "broker-controller") {
		return nodes[1], nodes[0]
	}
	return nodes[0], nodes[1]
}

// requireLossStated checks that the loss of a node is stated at once, although the API server still
// has its Pods as ready: on the broker there, and in the condition of the Configuration.
func requireLossStated(t *testing.T, node cluster.Node, configuration string, lost time.Time) {
	t.Helper()
	message := awaitVerdict(t, "default", configuration, akriv0.ConditionBrokersWorking, "Partly")
	recordVerdict(t, akriv0.ConditionBrokersWorking+" with NodeNotReady", time.Since(lost))
	require.Contains(t, message, "NodeNotReady: "+node.Name()+" is not ready")

	brokenCluster{
		object: "pod " + node.Name() + "-" + configuration + "-8120fe-pod",
		cause:  "NodeNotReady", message: node.Name() + " is not ready", remedy: "kubectl describe node " + node.Name(),
		counted: "broker", began: lost,
	}.complete(t).check(t)
}

// nodeRestart compares only the Pods of the other node: a kubelet that boots rejects Pods whose
// devices no plugin offers yet.
func nodeRestart(t *testing.T) {
	apply(t, echoConfiguration("e2e-off", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-off", 2)
	// The condition can be older than the brokers. The loss must be stated after it.
	awaitVerdict(t, "default", "e2e-off", akriv0.ConditionBrokersWorking, "Works")
	before := observe(t, "e2e-off")
	node, other := lostAndOther(t)
	pods, onNode := akri.Kubernetes.CoreV1().Pods(""), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name()}
	list, err := pods.List(t.Context(), onNode)
	require.NoError(t, err)
	stopped := runningContainers(list.Items)
	require.NotEmpty(t, stopped)
	require.NoError(t, node.Stop(t.Context()))
	requireLossStated(t, node, "e2e-off", markNotReady(t, node.Name()))
	require.NoError(t, node.Start(t.Context()))
	// Until then the pods are reported as ready.
	awaitObjects(t, "the kubelet to report that the containers have ended", pods, onNode, func(found []corev1.Pod) error {
		for id, name := range runningContainers(found) {
			if stopped[id] != "" {
				return fmt.Errorf("%s is reported as running", name)
			}
		}
		return nil
	})
	awaitServices(t)
	awaitBrokers(t, "default", "e2e-off", 2)
	after := observe(t, "e2e-off")
	require.Equal(t, before.instances, after.instances)
	otherBroker := other.Name() + "-e2e-off-8120fe-pod"
	require.Equal(t, before.brokers[otherBroker], after.brokers[otherBroker])
	for _, instance := range instances(t, "default", "e2e-off") {
		require.ElementsMatch(t, []string{"node-a", "node-b"}, instance.Spec.Nodes)
	}
}
