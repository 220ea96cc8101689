package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/mesh"
)

// awaitUsage waits until the deviceUsage of the Instance meets the condition and returns it.
func awaitUsage(t *testing.T, instance, what string, condition func(usage map[string]string) bool) map[string]string {
	t.Helper()
	object := awaitInstance(t, instance, what, func(object *akriv0.Instance) error {
		if usage := object.Spec.DeviceUsage; !condition(usage) {
			return fmt.Errorf("deviceUsage is %v", usage)
		}
		return nil
	})
	return object.Spec.DeviceUsage
}

// awaitInstance waits until check accepts the Instance and returns it.
func awaitInstance(t *testing.T, name, what string, check func(*akriv0.Instance) error) *akriv0.Instance {
	t.Helper()
	return awaitObject(t, name+" "+what, akri.Instances.In("default"), name, check)
}

// requireUnchanged checks that the pod runs and was neither replaced nor restarted.
func requireUnchanged(t *testing.T, before *corev1.Pod) {
	t.Helper()
	after, err := akri.Kubernetes.CoreV1().Pods(before.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, corev1.PodRunning, after.Status.Phase)
	status := after.Status.ContainerStatuses[0]
	// A process that starts while another one still serves its socket is restarted.
	require.Equal(t, before.Status.ContainerStatuses[0].RestartCount, status.RestartCount,
		"the last container ended with %+v", status.LastTerminationState.Terminated)
}

// changedCapacity raises the capacity while one pod uses the device, and lowers it while three do.
func changedCapacity(t *testing.T) {
	const instance = "e2e-capacity-8120fe"
	apply(t, echoConfiguration("e2e-capacity", 1, "", "foo0"))
	var pods []*corev1.Pod
	for i := range 3 {
		name := fmt.Sprintf("capacity-%d", i)
		apply(t, ownPod(name, instance))
		pods = append(pods, awaitReadyPod(t, "default", name))
		if i == 0 {
			require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-capacity", 3, "", "foo0")))
		}
	}
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-capacity", 1, "", "foo0")))
	awaitInstance(t, instance, "to have the lower capacity", func(object *akriv0.Instance) error {
		if object.Spec.Capacity != 1 {
			return fmt.Errorf("the capacity is %d", object.Spec.Capacity)
		}
		return nil
	})
	usage := instances(t, "default", "e2e-capacity")[0].Spec.DeviceUsage
	require.Len(t, usage, 3)
	require.NotContains(t, values(usage), "", "slots in use must stay")
	for _, pod := range pods {
		requireUnchanged(t, pod)
	}
	for _, pod := range pods {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	awaitUsage(t, instance, "to have one free slot", func(usage map[string]string) bool {
		return maps.Equal(usage, map[string]string{akriv0.SlotName(instance, 0): ""})
	})
	apply(t, ownPod("capacity-last", instance))
	awaitReadyPod(t, "default", "capacity-last")
}

// changedDevice changes a device while a pod uses it. The next pod gets the changed device.
func changedDevice(t *testing.T) {
	device := func(path string) *discoveryv0.Device {
		return &discoveryv0.Device{
			Id: "changing", Properties: map[string]string{"UDEV_DEVNODE": path},
			DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: path, HostPath: "/dev/zero", Permissions: "r"}},
		}
	}
	node := akri.Cluster.Nodes()[0]
	apply(t, strings.Replace(configurationOf("e2e-changed", "e2eChanged", ""), "spec:", "spec:\n  capacity: 2", 1))
	handler := handle(t, node, "e2eChanged", device("/dev/before"))
	resource := instanceName("e2e-changed", "changing", "", true)
	apply(t, ownPod("changed-before", resource))
	before := awaitReadyPod(t, "default", "changed-before")
	requireDevice(t, before, "/dev/before")

	handler.send(t, device("/dev/after"))
	awaitInstance(t, resource, "to show the change", func(object *akriv0.Instance) error {
		if got := object.Spec.BrokerProperties["UDEV_DEVNODE"]; got != "/dev/after" {
			return errors.New(got)
		}
		return nil
	})
	apply(t, ownPod("changed-after", resource))
	requireDevice(t, awaitReadyPod(t, "default", "changed-after"), "/dev/after")
	requireUnchanged(t, before)
	requireDevice(t, before, "/dev/before")
}

// requireDevice checks that the pod has this device node in its environment and can read it.
func requireDevice(t *testing.T, pod *corev1.Pod, path string) {
	t.Helper()
	response := query(t, pod)
	require.Equal(t, path, response.Env["UDEV_DEVNODE"])
	require.NotEmpty(t, response.Devices)
	for _, device := range response.Devices {
		require.Equal(t, path, device.Path)
		require.Empty(t, device.Error)
	}
}

// recreatedConfiguration deletes a Configuration and creates it again while pods use its devices.
func recreatedConfiguration(t *testing.T) {
	manifest := echoConfiguration("e2e-again", 1, "", "foo0", "foo1")
	apply(t, manifest)
	names := []string{"e2e-again-8120fe", "e2e-again-a19705"}
	awaitInstances(t, "default", "e2e-again", names...)
	apply(t, ownPod("again-instance", names[0]))
	byInstance := awaitReadyPod(t, "default", "again-instance")
	apply(t, ownPod("again-configuration", "e2e-again"))
	byConfiguration := awaitReadyPod(t, "default", "again-configuration")
	usage := func(found []akriv0.Instance) (all []string) {
		for _, instance := range found {
			all = append(all, values(instance.Spec.DeviceUsage)...)
		}
		return all
	}
	held := usage(instances(t, "default", "e2e-again"))
	if selected.dynamic {
		require.Regexp(t, "^D:[^:]+:"+byInstance.Spec.NodeName+"$", held[0])
		require.Regexp(t, "^D:[^:]+:"+byConfiguration.Spec.NodeName+"$", held[1])
	} else {
		require.Equal(t, byInstance.Spec.NodeName, held[0])
		require.Regexp(t, "^C:[0-9]+:"+byConfiguration.Spec.NodeName+"$", held[1])
	}

	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	awaitInstances(t, "default", "e2e-again")
	require.NoError(t, akri.ApplyText(t.Context(), manifest))
	awaitInstances(t, "default", "e2e-again", names...)
	awaitInstancesOf(t, "default", "e2e-again", "the holders", func(found []akriv0.Instance) error {
		if now := usage(found); !slices.Equal(now, held) {
			return fmt.Errorf("the holders are %v", now)
		}
		return nil
	})
	requireUnchanged(t, byInstance)
	requireUnchanged(t, byConfiguration)
}

// sameName applies two Configurations with the same name in two namespaces. The name stays with the
// first namespace until an administrator releases it.
func sameName(t *testing.T) {
	otherNamespace := func(manifest string) string {
		return strings.Replace(manifest, "namespace: default", "namespace: e2e-elsewhere", 1)
	}
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: e2e-elsewhere}}")
	older := echoConfiguration("e2e-same", 1, "", "foo0")
	apply(t, older)
	before := instanceUIDs(awaitInstances(t, "default", "e2e-same", "e2e-same-8120fe"))
	apply(t, otherNamespace(echoConfiguration("e2e-same", 1, "", "foo1")))
	awaitCondition(t, "e2e-elsewhere", "e2e-same", akriv0.ConditionReady, metav1.ConditionFalse, akriv0.ReasonNameTaken)
	awaitCondition(t, "e2e-elsewhere", "e2e-same", akriv0.ConditionStalled, metav1.ConditionTrue, akriv0.ReasonNameTaken)
	message := awaitCondition(t, "e2e-elsewhere", "e2e-same", akriv0.ConditionDevicesAccepted, metav1.ConditionFalse, akriv0.ReasonNameTaken)
	require.Contains(t, message, "the name belongs to another Configuration or namespace")
	require.NotContains(t, message, "default", "tenants do not see the namespaces of others")
	require.Equal(t, before, instanceUIDs(instances(t, "default", "e2e-same")))
	require.Empty(t, instances(t, "e2e-elsewhere", "e2e-same"))

	require.NoError(t, akri.DeleteText(t.Context(), older))
	awaitInstances(t, "default", "e2e-same")
	require.NoError(t, akri.ApplyText(t.Context(), older))
	awaitInstances(t, "default", "e2e-same", "e2e-same-8120fe")
	require.Empty(t, instances(t, "e2e-elsewhere", "e2e-same"), "the name stays with the namespace")

	require.NoError(t, akri.DeleteText(t.Context(), older))
	_, err := akri.Kubectl(t.Context(), "", "patch", "configmap", "akri-names", "--namespace", mesh.Namespace,
		"--type=json", `--patch=[{"op":"remove","path":"/data/e2e-same"}]`)
	require.NoError(t, err)
	awaitInstances(t, "e2e-elsewhere", "e2e-same", "e2e-same-a19705")
	awaitCondition(t, "e2e-elsewhere", "e2e-same", akriv0.ConditionReady, metav1.ConditionTrue, akriv0.ReasonAsExpected)
}

// deniedPod requests two devices of a Configuration on a node that offers two virtual devices of
// the same device: one of its slots is claimed, and no pod uses it yet.
func deniedPod(t *testing.T) {
	onlyDevicePlugins(t, "the kubelet refuses a Pod")
	const instance = "e2e-denied-8120fe"
	node := akri.Cluster.Nodes()[0]
	apply(t, echoConfiguration("e2e-denied", 2, "", "foo0"))
	awaitInstances(t, "default", "e2e-denied", instance)
	_, err := akri.Kubectl(t.Context(), "", "patch", "akrii", instance, "--type=merge",
		"--patch", fmt.Sprintf(`{"spec": {"deviceUsage": {"%s-0": "C:5:%s"}}}`, instance, node.Name()))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, mesh.AwaitOffered(ctx, node, "akri.sh/e2e-denied", "0", "5"))
	apply(t, onNode(node, twoDevices("denied", "e2e-denied")))
	await(t, "the reason in kubectl describe pod", func(ctx context.Context) error {
		text, err := akri.Kubectl(ctx, "", "describe", "pod", "denied")
		if err != nil {
			return err
		}
		for _, want := range []string{
			"UnexpectedAdmissionError",
			`choose devices of Configuration "e2e-denied": not enough distinct devices on this node: 2 requested by a container, 1 available`,
		} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("no %q in\n%s", want, text)
			}
		}
		return nil
	})
}

// waitingPods is the last example of the proposal: a Deployment of two pods that each request two
// devices of a Configuration.
func waitingPods(t *testing.T) {
	onlyDevicePlugins(t, "virtual devices")
	apply(t, echoConfiguration("e2e-waiting", 2, "", "foo0"))
	awaitTotalAllocatable(t, "e2e-waiting", 2)
	pods := follow(t, "waiting")
	apply(t, strings.Replace(deployment("waiting", "e2e-waiting", 2), `"akri.sh/e2e-waiting": "1"`, `"akri.sh/e2e-waiting": "2"`, 1))
	awaitInsufficient(t, "waiting", "e2e-waiting", 2)
	for _, instance := range instances(t, "default", "e2e-waiting") {
		require.Empty(t, slotHolders(instance.Spec.DeviceUsage), "pods that wait must not hold slots")
	}
	awaitTotalAllocatable(t, "e2e-waiting", 2)
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-waiting", 2, "", "foo0", "foo1")))
	awaitRunning(t, "waiting", 2)
	require.Empty(t, pods.rejections())
	for _, instance := range instances(t, "default", "e2e-waiting") {
		require.NotContains(t, values(instance.Spec.DeviceUsage), "", "each pod must have one slot of each device")
	}
}

// awaitInsufficient waits until exactly count pods of the workload are unschedulable, because no
// node has enough of the resource.
func awaitInsufficient(t *testing.T, app, resource string, count int) {
	t.Helper()
	reason := "Insufficient " + akriv0.ResourceName(resource)
	what := fmt.Sprintf("%d pods of %s that wait: %s", count, app, reason)
	awaitObjects(t, what, akri.Kubernetes.CoreV1().Pods("default"), ofApp(app), func(found []corev1.Pod) error {
		waiting := 0
		for _, pod := range found {
			for _, condition := range pod.Status.Conditions {
				if condition.Reason == corev1.PodReasonUnschedulable && strings.Contains(condition.Message, reason) {
					waiting++
				}
			}
		}
		if waiting != count {
			return fmt.Errorf("%d of %d pods are unschedulable", waiting, len(found))
		}
		return nil
	})
}
