package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

// broker is the sample broker's PodSpec; it serves what it reads on 8083.
const broker = `
    brokerPodSpec:
      containers:
      - name: broker
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: IfNotPresent
        ports: [{containerPort: 8083}]
        readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}
        resources:
          requests: {"{{PLACEHOLDER}}": "1"}
          limits: {"{{PLACEHOLDER}}": "1"}`

const zramConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: e2e-zram, namespace: default}
spec:
  discoveryHandler:
    name: udev
    discoveryDetails: |
      udevRules:
      - SUBSYSTEM=="block", KERNEL=="zram[1-9]*"
  brokerProperties: {GREETING: hello}
  capacity: 1
  brokerSpec:` + broker + `
  instanceServiceSpec: {type: ClusterIP, ports: [{name: http, port: 80, targetPort: 8083}]}
  configurationServiceSpec: {type: ClusterIP, ports: [{name: http, port: 80, targetPort: 8083}]}
`

// answer is what the sample broker says.
type answer struct {
	Node    string `json:"node"`
	Devices []struct {
		Env, Path, Content, Error string
	} `json:"devices"`
	Env map[string]string `json:"env"`
}

func ask(t *testing.T, pod *corev1.Pod) answer {
	t.Helper()
	var said answer
	text, err := akri.AskBroker(t.Context(), pod)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &said), "%s", text)
	return said
}

func instanceName(configuration, id, node string, shared bool) string {
	return akriv0.InstanceName(configuration, akriv0.Digest(id, node, shared))
}

func zramInstances(zram *devices.Zram) map[string]string {
	byNode := map[string]string{}
	for _, node := range akri.Cluster.Nodes() {
		byNode[node.Name()] = instanceName("e2e-zram", zram.DevPath(), node.Name(), false)
	}
	return byNode
}

func values(m map[string]string) (values []string) {
	for _, value := range m {
		values = append(values, value)
	}
	return values
}

// pluggedDevice has two slots: with one, which the broker takes, the Configuration's resource would be offered for a moment only.
func pluggedDevice(t *testing.T) {
	apply(t, strings.Replace(zramConfiguration, "capacity: 1", "capacity: 2", 1))
	zram := plug(t, "the first content")
	byNode := zramInstances(zram)

	checkZramInstances(t, zram, byNode)
	brokers := awaitBrokers(t, "default", "e2e-zram", len(byNode))
	for _, pod := range brokers {
		checkZramBroker(t, &pod, zram, byNode[pod.Spec.NodeName])
	}
	checkServices(t, byNode)

	unplug(t, zram)
	awaitInstances(t, "default", "e2e-zram")
	awaitBrokers(t, "default", "e2e-zram", 0)
	awaitService(t, "default", "e2e-zram-svc", false)
	for node, instance := range byNode {
		awaitService(t, "default", instance+"-svc", false)
		awaitAllocatable(t, node, instance, 0)
		awaitAllocatable(t, node, "e2e-zram", 0)
	}

	again := plug(t, "the second content")
	require.Equal(t, zram.Name(), again.Name(), "the kernel gives the lowest free number")
	awaitInstances(t, "default", "e2e-zram", values(byNode)...)
	for _, pod := range awaitBrokers(t, "default", "e2e-zram", len(byNode)) {
		checkZramBroker(t, &pod, again, byNode[pod.Spec.NodeName])
	}
}

const flaps = 30

// flappingDevice is pulled out as soon as its brokers are given to their nodes, when the kubelets are about to allocate it, and comes back
// at once. A kubelet that stumbled over that would be gone for the rest of the tests.
func flappingDevice(t *testing.T) {
	apply(t, strings.Replace(zramConfiguration, "brokerPodSpec:", "brokerPodSpec:\n      terminationGracePeriodSeconds: 0", 1))
	pods, err := akri.Kubernetes.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=e2e-zram"})
	require.NoError(t, err)
	defer pods.Stop()
	nodes := len(akri.Cluster.Nodes())
	scheduled := map[types.UID]bool{}
	for range flaps {
		zram := plug(t, "")
		awaitScheduled(t, pods, scheduled, nodes)
		unplug(t, zram)
		awaitInstances(t, "default", "e2e-zram")
	}
	awaitBrokers(t, "default", "e2e-zram", 0)
	zram := plug(t, "it stays")
	byNode := zramInstances(zram)
	awaitInstances(t, "default", "e2e-zram", values(byNode)...)
	for _, pod := range awaitBrokers(t, "default", "e2e-zram", nodes) {
		checkZramBroker(t, &pod, zram, byNode[pod.Spec.NodeName])
	}
}

// awaitScheduled waits until so many more pods have a node.
func awaitScheduled(t *testing.T, pods watch.Interface, scheduled map[types.UID]bool, more int) {
	t.Helper()
	late := time.After(within)
	for want := len(scheduled) + more; len(scheduled) < want; {
		select {
		case event := <-pods.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && event.Type != watch.Deleted {
				scheduled[pod.UID] = true
			}
		case <-late:
			explain(t)
			require.FailNow(t, "the brokers get no node", "%d of %d have one", len(scheduled), want)
		}
	}
}

func checkZramInstances(t *testing.T, zram *devices.Zram, byNode map[string]string) {
	t.Helper()
	awaitInstances(t, "default", "e2e-zram", values(byNode)...)
	for node, name := range byNode {
		instance, err := akri.Instances.In("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, []string{node}, instance.Spec.Nodes)
		require.False(t, instance.Spec.Shared)
		require.EqualValues(t, 2, instance.Spec.Capacity)
		require.Equal(t, "akri.sh/e2e-zram="+akriv0.InstanceDigest(name), instance.Spec.CDIName)
		require.Len(t, instance.Spec.DeviceUsage, 2)
		require.Contains(t, instance.Spec.DeviceUsage, name+"-0")
		require.Equal(t, map[string]string{"UDEV_DEVNODE": zram.Node(), "UDEV_DEVPATH": zram.DevPath(), "GREETING": "hello"}, instance.Spec.BrokerProperties)
		require.Empty(t, instance.Finalizers)
		require.Equal(t, "Configuration", metav1.GetControllerOf(instance).Kind)
		awaitAllocatable(t, node, name, 2)
		awaitAllocatable(t, node, "e2e-zram", 1) // the broker has the other
	}
}

func checkZramBroker(t *testing.T, pod *corev1.Pod, zram *devices.Zram, instance string) {
	t.Helper()
	require.Equal(t, instance+"-pod", pod.Name)
	require.Equal(t, map[string]string{
		"app": pod.Name, "controller": "akri.sh", "akri.sh/configuration": "e2e-zram",
		"akri.sh/instance": instance, "akri.sh/target-node": pod.Spec.NodeName,
	}, pod.Labels)
	said := ask(t, pod)
	suffix := "_" + strings.ToUpper(akriv0.InstanceDigest(instance))
	for key, value := range map[string]string{"UDEV_DEVNODE": zram.Node(), "UDEV_DEVPATH": zram.DevPath(), "GREETING": "hello"} {
		require.Equal(t, value, said.Env[key], "%s of %v", key, said.Env)
		require.Equal(t, value, said.Env[key+suffix], "%s of %v", key+suffix, said.Env)
	}
	require.NotEmpty(t, said.Devices)
	for _, device := range said.Devices {
		require.Equal(t, zram.Node(), device.Path)
		require.Empty(t, device.Error)
		require.Contains(t, device.Content, zram.Content)
	}
	await(t, "the broker's slot", func(ctx context.Context) error {
		object, err := akri.Instances.In("default").Get(ctx, instance, metav1.GetOptions{})
		if err == nil && !slices.Contains(values(object.Spec.DeviceUsage), pod.Spec.NodeName) {
			err = fmt.Errorf("deviceUsage is %v", object.Spec.DeviceUsage)
		}
		return err
	})
}

// checkServices asks the brokers through their Services, from the API server, which reaches ClusterIPs as pods do.
func checkServices(t *testing.T, byNode map[string]string) {
	t.Helper()
	names := []string{"e2e-zram-svc"}
	for _, instance := range byNode {
		names = append(names, instance+"-svc")
	}
	for _, name := range names {
		awaitService(t, "default", name, true)
		await(t, "an answer through service "+name, func(ctx context.Context) error {
			var status int
			result := akri.Kubernetes.CoreV1().RESTClient().Get().Namespace("default").Resource("services").
				Name(name + ":http").SubResource("proxy").Do(ctx).StatusCode(&status)
			if status != http.StatusOK {
				return fmt.Errorf("status %d: %w", status, result.Error())
			}
			return nil
		})
	}
}
