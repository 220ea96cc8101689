package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
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

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

// broker is a brokerSpec with the sample broker, which serves the content of its devices on port
// 8083.
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

// applyZram applies a Configuration of all zram devices, and reserves these.
func applyZram(t *testing.T, manifest string) {
	t.Helper()
	reserve(t, "zram")
	apply(t, manifest)
}

// reserve locks a kind of device until the end of the test: all clusters of the machine see a
// device that is plugged in.
func reserve(t *testing.T, kind string) {
	t.Helper()
	unlock, err := binaries.Lock(filepath.Join(os.TempDir(), "akri-e2e-"+kind))
	require.NoError(t, err)
	t.Cleanup(unlock)
}

// brokerResponse is a response of the sample broker.
type brokerResponse struct {
	Node    string `json:"node"`
	Devices []struct {
		Env, Path, Content, Error string
	} `json:"devices"`
	Env map[string]string `json:"env"`
}

// query returns the response of a pod with the sample broker.
func query(t *testing.T, pod *corev1.Pod) brokerResponse {
	t.Helper()
	var response brokerResponse
	text, err := akri.QueryBroker(t.Context(), pod)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &response), "%s", text)
	return response
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

// zramDevices has an order, because the Events of a Configuration are limited, also if it is
// created again: flappingDevice uses them up.
func zramDevices(t *testing.T) { inOrder(t, pluggedDevice, flappingDevice) }

// pluggedDevice uses two slots. With one, which the broker uses, the Configuration's resource would
// be offered only briefly.
func pluggedDevice(t *testing.T) {
	applyZram(t, strings.Replace(zramConfiguration, "capacity: 1", "capacity: 2", 1))
	zram := plug(t, "first content")
	byNode := zramInstances(zram)

	checkZramInstances(t, zram, byNode)
	brokers := awaitBrokers(t, "default", "e2e-zram", len(byNode))
	for _, pod := range brokers {
		checkZramBroker(t, &pod, zram, byNode[pod.Spec.NodeName])
	}
	checkServices(t, byNode)

	awaitDeviceEvents(t, akriv0.ReasonDeviceAdded, byNode)
	unplug(t, zram)
	awaitInstances(t, "default", "e2e-zram")
	awaitDeviceEvents(t, akriv0.ReasonDeviceRemoved, byNode)
	message := awaitCondition(t, "default", "e2e-zram", akriv0.ConditionDevicesFound, metav1.ConditionFalse, akriv0.ReasonNothingMatched)
	require.Contains(t, message, "no device matches on "+strings.Join(slices.Sorted(maps.Keys(byNode)), ", ")+"; ")
	awaitBrokers(t, "default", "e2e-zram", 0)
	awaitService(t, "default", "e2e-zram-svc", false)
	for node, instance := range byNode {
		awaitService(t, "default", instance+"-svc", false)
		awaitAllocatable(t, node, instance, 0)
		awaitAllocatable(t, node, "e2e-zram", 0)
	}

	again := plug(t, "second content")
	require.Equal(t, zram.Name(), again.Name(), "the kernel assigns the lowest free number")
	awaitInstances(t, "default", "e2e-zram", values(byNode)...)
	for _, pod := range awaitBrokers(t, "default", "e2e-zram", len(byNode)) {
		checkZramBroker(t, &pod, again, byNode[pod.Spec.NodeName])
	}
}

// awaitDeviceEvents waits until Events of the Configuration name all devices.
func awaitDeviceEvents(t *testing.T, reason string, byNode map[string]string) {
	t.Helper()
	configuration, err := akri.Configurations.In("default").Get(t.Context(), "e2e-zram", metav1.GetOptions{})
	require.NoError(t, err)
	selector := fmt.Sprintf("involvedObject.uid=%s,reason=%s", configuration.UID, reason)
	selected := metav1.ListOptions{FieldSelector: selector}
	awaitObjects(t, "Events "+reason, akri.Kubernetes.CoreV1().Events("default"), selected, func(events []corev1.Event) error {
		var messages []string
		for _, event := range events {
			messages = append(messages, event.Message)
		}
		for node, instance := range byNode {
			if !strings.Contains(strings.Join(messages, ", "), instance+" on "+node) {
				return fmt.Errorf("no Event names %s on %s: %q", instance, node, messages)
			}
		}
		return nil
	})
}

// defaultFlaps is how often a device is unplugged unless AKRI_E2E_FLAPS is set.
const defaultFlaps = 20

// flappingDevice unplugs a device when its brokers are scheduled, while the kubelets allocate it,
// and plugs it in again immediately. A kubelet that crashed would fail the rest of the test.
func flappingDevice(t *testing.T) {
	const noGrace = "brokerPodSpec:\n      terminationGracePeriodSeconds: 0"
	applyZram(t, strings.Replace(zramConfiguration, "brokerPodSpec:", noGrace, 1))
	pods, err := akri.Kubernetes.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=e2e-zram"})
	require.NoError(t, err)
	defer pods.Stop()
	nodes := len(akri.Cluster.Nodes())
	scheduled := map[types.UID]bool{}
	for range repetitions(t, "AKRI_E2E_FLAPS", defaultFlaps) {
		zram := plug(t, "")
		awaitScheduled(t, pods, scheduled, nodes)
		unplug(t, zram)
		awaitInstances(t, "default", "e2e-zram")
	}
	awaitBrokers(t, "default", "e2e-zram", 0)
	zram := plug(t, "last content")
	byNode := zramInstances(zram)
	awaitInstances(t, "default", "e2e-zram", values(byNode)...)
	for _, pod := range awaitBrokers(t, "default", "e2e-zram", nodes) {
		checkZramBroker(t, &pod, zram, byNode[pod.Spec.NodeName])
	}
}

// awaitScheduled waits until more additional pods are scheduled.
func awaitScheduled(t *testing.T, pods watch.Interface, scheduled map[types.UID]bool, more int) {
	t.Helper()
	expired := time.After(timeout)
	for want := len(scheduled) + more; len(scheduled) < want; {
		select {
		case event := <-pods.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && event.Type != watch.Deleted {
				scheduled[pod.UID] = true
			}
		case <-expired:
			logState(t)
			require.FailNow(t, "brokers are not scheduled", "%d of %d are scheduled", len(scheduled), want)
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
		require.Equal(t, "e2e-zram", instance.Labels[akriv0.ConfigurationLabel])
		require.False(t, instance.Spec.Shared)
		require.EqualValues(t, 2, instance.Spec.Capacity)
		require.Equal(t, "akri.sh/e2e-zram="+akriv0.InstanceDigest(name), instance.Spec.CDIName)
		require.Len(t, instance.Spec.DeviceUsage, 2)
		require.Contains(t, instance.Spec.DeviceUsage, name+"-0")
		require.Equal(t, map[string]string{"UDEV_DEVNODE": zram.Node(), "UDEV_DEVPATH": zram.DevPath(), "GREETING": "hello"}, instance.Spec.BrokerProperties)
		require.Empty(t, instance.Finalizers)
		require.Equal(t, "Configuration", metav1.GetControllerOf(instance).Kind)
		awaitAllocatable(t, node, name, 2)
		awaitAllocatable(t, node, "e2e-zram", 1) // the broker uses the other
	}
}

func checkZramBroker(t *testing.T, pod *corev1.Pod, zram *devices.Zram, instance string) {
	t.Helper()
	require.Equal(t, instance+"-pod", pod.Name)
	require.Equal(t, map[string]string{
		"app": pod.Name, "controller": "akri.sh", "akri.sh/configuration": "e2e-zram",
		"akri.sh/instance": instance, "akri.sh/target-node": pod.Spec.NodeName,
	}, pod.Labels)
	response := query(t, pod)
	suffix := "_" + strings.ToUpper(akriv0.InstanceDigest(instance))
	for key, value := range map[string]string{"UDEV_DEVNODE": zram.Node(), "UDEV_DEVPATH": zram.DevPath(), "GREETING": "hello"} {
		require.Equal(t, value, response.Env[key], "%s of %v", key, response.Env)
		require.Equal(t, value, response.Env[key+suffix], "%s of %v", key+suffix, response.Env)
	}
	require.NotEmpty(t, response.Devices)
	for _, device := range response.Devices {
		require.Equal(t, zram.Node(), device.Path)
		require.Empty(t, device.Error)
		require.Contains(t, device.Content, zram.Content)
	}
	awaitUsage(t, instance, "to have the slot of its broker", func(usage map[string]string) bool {
		return slices.ContainsFunc(values(usage), func(value string) bool {
			holder, err := akriv0.ParseSlotHolder(value)
			return err == nil && holder.Node == pod.Spec.NodeName
		})
	})
}

// checkServices queries the brokers through their Services, from the API server, which reaches
// ClusterIPs as pods do.
func checkServices(t *testing.T, byNode map[string]string) {
	t.Helper()
	names := []string{"e2e-zram-svc"}
	for _, instance := range byNode {
		names = append(names, instance+"-svc")
	}
	for _, name := range names {
		awaitService(t, "default", name, true)
		await(t, "a response through Service "+name, func(ctx context.Context) error {
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
