package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// dynamic is the form with Dynamic Resource Allocation.
func dynamic() form {
	return form{
		values:   []string{"global.resources=dra"},
		services: append([]string{"registrar", "discovery-operator", "dra-kubelet-plugin"}, defaultHandlers()...),
	}
}

// TestDRA runs scenarios with Dynamic Resource Allocation, which the cluster decides for, on an
// installation of its own, with AKRI_E2E_AGENT on the agent.
func TestDRA(t *testing.T) {
	selectForm(decided())
	if os.Getenv("AKRI_E2E_AGENT") != "" {
		selectForm(decidedAgent())
	}
	require.NoError(t, akri.Install(t.Context()))
	// The longest start first.
	if !parallel(t,
		pluggedClaim,
		crowdedClaims,
		deletedClaims,
		selectedDevice,
		severalClaims,
		followedDevice,
		preferredDevice,
		pairOfDevices,
		diagnosedDevice,
		refusedClaims,
		foreignAttribute,
		secondDriver,
		explainedClaims,
		serialSample,
		quotaOfDevices,
		initContainerWithDevice,
		pendingPriority,
	) {
		return
	}
	inOrder(t,
		// Failures of services, nodes and devices.
		killedWithClaims,
		interruptedClaims,
		replacedPlugins,
		claimsWithoutPlugin,
		returnedPlugins,
		claimsWithoutAPI,
		claimsOfRestartedNode,
		unpluggedClaims,
		randomFailures,

		// Changes of the installation.
		decidedCluster,
		movedNode,
		bothForms,
		uninstallDRA,
		keptForms,
	)
}

// pluggedClaim plugs in a device while its brokers can use it only through ResourceClaims.
func pluggedClaim(t *testing.T) {
	applyZram(t, zramConfiguration)
	plugged := time.Now()
	zram := plug(t, "first content")
	byNode := zramInstances(zram)
	awaitInstances(t, "default", "e2e-zram", values(byNode)...)
	brokers := awaitBrokers(t, "default", "e2e-zram", len(byNode))
	t.Logf("%d brokers were ready %s after the device was plugged in", len(brokers), time.Since(plugged).Round(time.Millisecond))
	for _, pod := range brokers {
		checkZramBroker(t, &pod, zram, byNode[pod.Spec.NodeName])
		require.NotNil(t, pod.Status.ExtendedResourceClaimStatus)
	}
	unplug(t, zram)
	awaitInstances(t, "default", "e2e-zram")
	awaitBrokers(t, "default", "e2e-zram", 0)
	for _, instance := range byNode {
		awaitSlice(t, instance, false)
	}
}

// explainWaiting checks that explain names the Pods that use the device for one that waits, and
// that one that runs works.
func explainWaiting(t *testing.T, app string, running []corev1.Pod) {
	t.Helper()
	var waiting string
	awaitObjects(t, "an unschedulable Pod", akri.Kubernetes.CoreV1().Pods("default"), ofApp(app), func(pods []corev1.Pod) error {
		i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return unschedulable(&pod) })
		if i < 0 {
			return errors.New("no Pod is unschedulable")
		}
		waiting = pods[i].Name
		return nil
	})
	brokenCluster{
		object: "pod " + waiting,
		cause:  "CapacityUsed", message: "default/" + running[0].Name, remedy: "kubectl patch configuration.akri.sh",
	}.check(t)
	await(t, "the verdict that the Pod works", func(ctx context.Context) error {
		text, err := kubectlAkri(ctx, "explain", "pod", running[0].Name)
		if err == nil && !regexp.MustCompile(`(?m)^Pod: +works`).MatchString(text) {
			err = errors.New(text)
		}
		return err
	})
}

// awaitSlice waits until the device of the Instance is, or is not, in a ResourceSlice.
func awaitSlice(t *testing.T, instance string, exists bool) {
	t.Helper()
	awaitPublished(t, fmt.Sprintf("ResourceSlice of %s, exists: %t", instance, exists), instance, func(found []resourcev1.Device) error {
		if (len(found) == 1) != exists {
			return fmt.Errorf("the device is in %d ResourceSlices", len(found))
		}
		return nil
	})
}

// awaitPublished waits until the check of the device of the Instance, as ResourceSlices have it,
// succeeds. On Kubernetes before 1.36 each slot is a device, and the check gets the first one.
func awaitPublished(t *testing.T, what, instance string, check func(found []resourcev1.Device) error) {
	t.Helper()
	ofDriver := metav1.ListOptions{FieldSelector: "spec.driver=" + akriv0.Driver}
	awaitObjects(t, what, akri.Kubernetes.ResourceV1().ResourceSlices(), ofDriver, func(all []resourcev1.ResourceSlice) error {
		var found []resourcev1.Device
		for _, slice := range all {
			for _, device := range slice.Spec.Devices {
				if device.Name == instance || device.Name == instance+"-0" {
					found = append(found, device)
				}
			}
		}
		return check(found)
	})
}

// crowdedClaims runs more pods on two nodes than the device's capacity. The others wait: no pod is
// refused by a kubelet.
func crowdedClaims(t *testing.T) {
	const instance = "e2e-claims-8120fe"
	apply(t, echoConfiguration("e2e-claims", 3, "", "foo0"))
	awaitSlice(t, instance, true)
	pods := follow(t, "claims")
	manifest := deployment("claims", "e2e-claims", 6)
	apply(t, manifest)
	running := awaitRunning(t, "claims", 3)
	explainWaiting(t, "claims", running)
	for range 3 {
		deleted := time.Now()
		previous := running[0].Name
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), previous, metav1.DeleteOptions{}))
		running = awaitRunningWithout(t, "claims", 3, previous)
		t.Logf("another pod ran %s after a pod was deleted", time.Since(deleted).Round(time.Millisecond))
		requireClaims(t, instance, 3)
	}
	require.Empty(t, pods.rejections(), "pods that the kubelet rejected")
	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	awaitFree(t, instance)
}

// requireClaims checks that ResourceClaims hold so many slots of the Instance, and nothing else
// does.
func requireClaims(t *testing.T, instance string, count int) {
	t.Helper()
	awaitUsage(t, instance, fmt.Sprintf("to have %d claims", count), func(usage map[string]string) bool {
		holders := slotHolders(usage)
		return len(holders) == count && !slices.ContainsFunc(holders, func(holder string) bool { return !strings.HasPrefix(holder, "D:") })
	})
}

const twoContainers = `
apiVersion: v1
kind: Pod
metadata: {name: two-containers, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: device, resourceClaimTemplateName: dra-selector}]
  containers:
  - {name: one, image: "cluster.invalid/pause:1", imagePullPolicy: IfNotPresent, resources: {claims: [{name: device}]}}
  - {name: other, image: "cluster.invalid/pause:1", imagePullPolicy: IfNotPresent, resources: {claims: [{name: device}]}}
`

// selectedDevice applies the sample, which selects a device by a property that its Configuration
// publishes. Two containers of another pod share one slot.
func selectedDevice(t *testing.T) {
	apply(t, sample(t, "dra-selector.yaml"))
	first := awaitRunning(t, "dra-selector", 1)[0]
	require.Equal(t, "foo1", environment(t, &first, "app")["DEBUG_ECHO_DESCRIPTION"])
	apply(t, twoContainers)
	pod := awaitReadyPod(t, "default", "two-containers")
	for _, container := range pod.Spec.Containers {
		env := environment(t, pod, container.Name)
		require.Equal(t, "foo1", env["DEBUG_ECHO_DESCRIPTION"])
		require.Equal(t, "foo1", env["DEBUG_ECHO_DESCRIPTION_A19705"])
	}
	requireClaims(t, "dra-selector-a19705", 2)
	requireClaims(t, "dra-selector-8120fe", 0)

	// Programs find the metadata by the names in their Pod, or by that of the claim for resources.
	const ofTemplates = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/"
	for pod, container := range map[*corev1.Pod]string{&first: "app", pod: pod.Spec.Containers[1].Name} {
		requireMetadata(t, pod, container, ofTemplates+"device/device/akri.sh-metadata.json",
			map[string]string{"instance": "dra-selector-a19705", "DEBUG_ECHO_DESCRIPTION": "foo1"})
	}
	apply(t, ownPod("described", "dra-selector"))
	described := awaitReadyPod(t, "default", "described")
	claim := described.Status.ExtendedResourceClaimStatus
	require.Len(t, claim.RequestMappings, 1)
	requireMetadata(t, described, described.Spec.Containers[0].Name,
		fmt.Sprintf("/var/run/kubernetes.io/dra-device-attributes/resourceclaims/%s/%s/akri.sh-metadata.json", claim.ResourceClaimName, claim.RequestMappings[0].RequestName),
		map[string]string{"configuration": "dra-selector", "namespace": "default", "DEBUG_ECHO_DESCRIPTION": "foo0"})

	// Pods of a device that is removed keep running. Their status has its health.
	awaitHealth(t, "two-containers", corev1.ResourceHealthStatusHealthy, "")
	apply(t, sample(t, "dra-selector.yaml", "[foo0, foo1]", "[foo0]"))
	awaitHealth(t, "two-containers", corev1.ResourceHealthStatusUnhealthy, fmt.Sprintf("node %q does not see the device", pod.Spec.NodeName))
	requireUnchanged(t, pod)
}

// foreignAttribute reports a shared device from a second node, which is the first by name, with
// another value of the property that its Configuration publishes. The attribute keeps the value. A
// Pod on the first node gets what that node reports.
func foreignAttribute(t *testing.T) {
	configuration := configurationOf("e2e-disputed", "e2eDisputed", "")
	apply(t, strings.Replace(configuration, "namespace: default", `namespace: default, annotations: {akri.sh/attributes: SERIAL}`, 1))
	reported := func(serial string) *discoveryv0.Device {
		return &discoveryv0.Device{Id: "x", Properties: map[string]string{"SERIAL": serial}}
	}
	nodes := akri.Cluster.Nodes()
	instance := instanceName("e2e-disputed", "x", "", true)
	handle(t, nodes[1], "e2eDisputed", reported("established"))
	awaitAttribute(t, instance, "SERIAL", "established")

	handle(t, nodes[0], "e2eDisputed", reported("foreign"))
	awaitCondition(t, "default", "e2e-disputed", akriv0.ConditionPropertiesAgree, metav1.ConditionFalse, akriv0.ReasonPropertiesDiffer)
	apply(t, selecting(nodes[1], ownPod("e2e-disputed", instance)))
	pod := awaitReadyPod(t, "default", "e2e-disputed")
	require.Equal(t, "established", environment(t, pod, "main")["SERIAL"])
	awaitAttribute(t, instance, "SERIAL", "established")
}

// awaitAttribute waits until the device of the Instance has the attribute in its ResourceSlice.
func awaitAttribute(t *testing.T, instance string, name resourcev1.QualifiedName, value string) {
	t.Helper()
	awaitPublished(t, "attribute of "+instance, instance, func(found []resourcev1.Device) error {
		if len(found) == 0 {
			return errors.New("no ResourceSlice has the device")
		}
		if attribute := found[0].Attributes[name].StringValue; attribute == nil || *attribute != value {
			return fmt.Errorf("the attributes are %v", found[0].Attributes)
		}
		return nil
	})
}

// awaitHealth waits until the status of each container has the health of its device.
func awaitHealth(t *testing.T, name string, health corev1.ResourceHealthStatus, message string) {
	t.Helper()
	what := fmt.Sprintf("health %s of pod %s", health, name)
	awaitObject(t, what, akri.Kubernetes.CoreV1().Pods("default"), name, func(pod *corev1.Pod) error {
		for _, container := range pod.Status.ContainerStatuses {
			resources := container.AllocatedResourcesStatus
			if len(resources) != 1 || len(resources[0].Resources) != 1 {
				return fmt.Errorf("the resources are %+v", resources)
			}
			got, text := resources[0].Resources[0], ""
			if got.Message != nil {
				text = *got.Message
			}
			if got.Health != health || text != message {
				return fmt.Errorf("the health is %s %q", got.Health, text)
			}
		}
		return nil
	})
}

// followedDevice applies the sample whose Pod is evicted when its device is removed.
func followedDevice(t *testing.T) {
	apply(t, sample(t, "dra-follow.yaml"))
	pod := awaitRunning(t, "dra-follow", 1)[0]
	first := environment(t, &pod, "app")["DEBUG_ECHO_DESCRIPTION"]
	other := map[string]string{"foo0": "foo1", "foo1": "foo0"}[first]
	require.NoError(t, akri.ApplyText(t.Context(), sample(t, "dra-follow.yaml", "[foo0, foo1]", "["+other+"]")))
	lost := time.Now()
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name}
	awaitObjects(t, "the eviction of "+pod.Name, akri.Kubernetes.CoreV1().Pods("default"), named, func(found []corev1.Pod) error {
		if len(found) > 0 && found[0].DeletionTimestamp == nil {
			return errors.New("the pod is not deleted")
		}
		return nil
	})
	next := awaitRunning(t, "dra-follow", 1)[0]
	t.Logf("the next Pod runs with another device %s after the first one was removed", time.Since(lost).Round(time.Millisecond))
	require.Equal(t, other, environment(t, &next, "app")["DEBUG_ECHO_DESCRIPTION"])
	for _, instance := range instances(t, "default", "dra-follow") {
		requireClaims(t, instance.Name, 1)
	}
}

// severalClaims checks that a container that requests two devices of a Configuration gets two
// different ones.
func severalClaims(t *testing.T) {
	apply(t, echoConfiguration("e2e-two", 2, "", "foo0", "foo1"))
	apply(t, twoDevices("two", "e2e-two"))
	pod := awaitReadyPod(t, "default", "two")
	env := query(t, pod).Env
	require.Equal(t, "foo0", env["DEBUG_ECHO_DESCRIPTION_8120FE"])
	require.Equal(t, "foo1", env["DEBUG_ECHO_DESCRIPTION_A19705"])
	require.Equal(t, "foo1", env["DEBUG_ECHO_DESCRIPTION"], "the last in the order of Instance names")
	requireClaims(t, "e2e-two-8120fe", 1)
	requireClaims(t, "e2e-two-a19705", 1)
}

// killedWithClaims kills each service and the kubelets while pods use devices. These keep running,
// a pod that is deleted meanwhile leaves nothing behind, and a new one runs.
func killedWithClaims(t *testing.T) {
	const instance = "e2e-killed-8120fe"
	apply(t, echoConfiguration("e2e-killed", 3, "", "foo0"))
	apply(t, deployment("killed", "e2e-killed", 2))
	before := podUIDs(awaitRunning(t, "killed", 2))
	requireClaims(t, instance, 2)
	var awaitRestarted []func()
	for _, service := range []string{selected.process("dra-kubelet-plugin"), "dra-controller", "instance-writer"} {
		for _, pod := range servicePods(t, service) {
			awaitRestarted = append(awaitRestarted, killPod(t, pod))
		}
	}
	for _, await := range awaitRestarted {
		await()
	}
	manifest := ownPod("after-kill", "e2e-killed")
	apply(t, manifest)
	afterKill := claimFile(t, awaitReadyPod(t, "default", "after-kill"))
	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	requireClaims(t, instance, 2)
	require.Equal(t, before, podUIDs(awaitRunning(t, "killed", 2)))

	apply(t, ownPod("kubelet", "e2e-killed"))
	pod := awaitReadyPod(t, "default", "kubelet")
	whileStopped := claimFile(t, pod)
	node, err := akri.Cluster.Node(pod.Spec.NodeName)
	require.NoError(t, err)
	require.Contains(t, claimFiles(t, node), whileStopped)
	require.NoError(t, node.StopKubelet(t.Context()))
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "kubelet", metav1.DeleteOptions{}))
	require.NoError(t, node.StartKubelet(t.Context()))
	requireClaims(t, instance, 2)
	require.Equal(t, before, podUIDs(awaitRunning(t, "killed", 2)))
	await(t, "the removal of the files of deleted pods", func(context.Context) error {
		for _, node := range akri.Cluster.Nodes() {
			files := claimFiles(t, node)
			if slices.Contains(files, afterKill) || slices.Contains(files, whileStopped) {
				return fmt.Errorf("%s has %v", node.Name(), files)
			}
		}
		return nil
	})
}

// claimFile returns the name of the CDI file of the claim of a pod.
func claimFile(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	require.NotNil(t, pod.Status.ExtendedResourceClaimStatus)
	name := pod.Status.ExtendedResourceClaimStatus.ResourceClaimName
	claim, err := akri.Kubernetes.ResourceV1().ResourceClaims(pod.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return "akri.sh-claim_" + string(claim.UID) + ".json"
}

// claimFiles returns the CDI files of ResourceClaims on the node.
func claimFiles(t *testing.T, node cluster.Node) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(node.Path("/run/cdi"))
	require.NoError(t, err)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "akri.sh-claim_") {
			files = append(files, entry.Name())
		}
	}
	return files
}

// bothForms sets Dynamic Resource Allocation instead of the decision, so that device-plugin-host
// runs only on nodes with the label. It uses a device on such a node and on another one at the same
// time. The slots of both forms together never exceed the capacity.
func bothForms(t *testing.T) {
	form, values := selected, akri.Values
	t.Cleanup(func() { selected, akri.Values = form, values })
	selected.decided, akri.Values = false, slices.Concat(akri.Values, dynamic().values)
	require.NoError(t, akri.Install(t.Context()))

	const instance = "e2e-forms-8120fe"
	nodes := akri.Cluster.Nodes()
	setResources(t, nodes[1], akriv0.ResourcesDevicePlugin)
	t.Cleanup(func() { setResources(t, nodes[1], "") })
	apply(t, echoConfiguration("e2e-forms", 3, "", "foo0"))
	awaitAllocatable(t, nodes[1].Name(), "e2e-forms", 1) // a node offers one virtual device for each device
	apply(t, selecting(nodes[1], ownPod("plugin", "e2e-forms")))
	awaitReadyPod(t, "default", "plugin")
	for _, name := range []string{"claim-1", "claim-2"} {
		apply(t, selecting(nodes[0], ownPod(name, "e2e-forms")))
		awaitReadyPod(t, "default", name)
	}
	require.ElementsMatch(t, []string{"D:" + nodes[0].Name(), "D:" + nodes[0].Name(), "C:" + nodes[1].Name()},
		slotHolders(instances(t, "default", "e2e-forms")[0].Spec.DeviceUsage))

	// The fourth pod waits, and gets the slot of the pod that used a device plugin.
	apply(t, selecting(nodes[0], ownPod("claim-3", "e2e-forms")))
	awaitUnschedulable(t, "claim-3")
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "plugin", metav1.DeleteOptions{}))
	awaitReadyPod(t, "default", "claim-3")
	requireClaims(t, instance, 3)
}

func awaitUnschedulable(t *testing.T, name string) {
	t.Helper()
	awaitPod(t, name, "pod "+name+" to wait for a device", func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		})
	})
}

// selecting returns the manifest of a pod that the scheduler places on the node.
func selecting(node cluster.Node, pod string) string {
	return strings.Replace(pod, "spec:", "spec:\n  nodeSelector: {kubernetes.io/hostname: "+node.Name()+"}", 1)
}

// setResources sets the label with the form of the node, and waits until device-plugin-host runs
// there or has ended.
func setResources(t *testing.T, node cluster.Node, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	defer cancel()
	label := "null"
	if value != "" {
		label = `"` + value + `"`
	}
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, akriv0.ResourcesLabel, label)
	_, err := akri.Kubernetes.CoreV1().Nodes().Patch(ctx, node.Name(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	if selected.decided {
		return // no Pod comes or goes
	}
	ofNode := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=device-plugin-host", FieldSelector: "spec.nodeName=" + node.Name()}
	pods := akri.Kubernetes.CoreV1().Pods(mesh.Namespace)
	require.NoError(t, mesh.AwaitObjects(ctx, "form of "+node.Name(), pods, ofNode, func(found []corev1.Pod) error {
		if len(found) == 0 == (value == "") && !slices.ContainsFunc(found, func(pod corev1.Pod) bool { return !mesh.Ready(&pod) }) {
			return nil
		}
		return fmt.Errorf("%d pods of device-plugin-host exist", len(found))
	}))
}

// uninstallDRA ends a broker with its release.
func uninstallDRA(t *testing.T) {
	for _, node := range akri.Cluster.Nodes() {
		awaitFiles(t, node, 0) // those of earlier scenarios are gone
	}
	apply(t, echoConfiguration("e2e-gone", 1, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-gone", 1)
	uninstallWithSlices(t)
}

// uninstallWithSlices checks that the objects for the scheduler and the files of claims are removed
// with the release.
func uninstallWithSlices(t *testing.T) {
	t.Helper()
	awaitSlice(t, "e2e-gone-8120fe", true)
	requireUninstalled(t, "e2e-gone", true)
	await(t, "removal of DeviceClasses and ResourceSlices", func(ctx context.Context) error {
		output, err := akri.Kubectl(ctx, "", "get", "deviceclasses,resourceslices", "-o", "name")
		if err == nil && strings.Contains(output, "akri.sh") {
			err = fmt.Errorf("left: %s", output)
		}
		return err
	})
	for _, node := range akri.Cluster.Nodes() {
		left, err := filepath.Glob(filepath.Join(node.Path("/run/cdi"), "akri.sh-*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}
