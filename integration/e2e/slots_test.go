package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// onNode returns the manifest of a pod that is bound to the node.
func onNode(node cluster.Node, pod string) string {
	return strings.Replace(pod, "spec:", "spec:\n  nodeName: "+node.Name(), 1)
}

// twoDevices returns the manifest of a pod that requests two devices of the resource.
func twoDevices(name, resource string) string {
	return strings.Replace(ownPod(name, resource), resource+`": "1"`, resource+`": "2"`, 1)
}

// releases returns how often the slot was released since the pods of Akri started, by the reason in
// their logs: idle, if the kubelet listed a pod that used the slot, or unconfirmed.
func releases(t *testing.T, slot string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, pod := range servicePods(t, selected.process("device-plugin-host")) {
		for line := range strings.Lines(logs(t, pod.Name)) {
			var entry struct{ Message, Slot, Reason string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "released unused slots" &&
				slices.Contains(strings.Split(entry.Slot, ", "), slot) {
				counts[entry.Reason]++
			}
		}
	}
	return counts
}

func awaitFree(t *testing.T, instance string) {
	t.Helper()
	awaitUsage(t, instance, "to be free", func(usage map[string]string) bool {
		return !slices.ContainsFunc(values(usage), func(holder string) bool { return holder != "" })
	})
}

const shortPod = `
apiVersion: v1
kind: Pod
metadata: {name: short, namespace: default}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: ghcr.io/akri-mesh/registrar:dev
    imagePullPolicy: IfNotPresent
    args: ["--version"]
    resources: {limits: {"akri.sh/RESOURCE": "1"}}
`

const shortPodsPerResource = 3

// shortPods runs pods that end at once. The kubelet's list shows each of them to
// device-plugin-host, so that their slots are free without waiting for the reservation to expire.
func shortPods(t *testing.T) {
	onlyDevicePlugins(t, "the reason of a release, idle or unconfirmed")
	const configuration, instance = "e2e-short", "e2e-short-8120fe"
	apply(t, echoConfiguration(configuration, 1, "", "foo0"))
	awaitTotalAllocatable(t, instance, 2)
	for _, resource := range []string{instance, configuration} {
		manifest := onNode(akri.Cluster.Nodes()[0], strings.Replace(shortPod, "RESOURCE", resource, 1))
		for range shortPodsPerResource {
			require.NoError(t, akri.ApplyText(t.Context(), manifest))
			awaitPod(t, "short", "the end of the pod", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
			awaitFree(t, instance)
			require.NoError(t, akri.DeleteText(t.Context(), manifest))
		}
	}
	require.Equal(t, map[string]int{"idle": 2 * shortPodsPerResource}, releases(t, akriv0.SlotName(instance, 0)))
}

// mostFreeDevice checks that a pod that requests any device of the Configuration gets the one with
// the most free slots.
func mostFreeDevice(t *testing.T) {
	onlyDevicePlugins(t, "the policy of config-plugin-allocator")
	const configuration, foo0, foo1 = "e2e-free", "e2e-free-8120fe", "e2e-free-a19705"
	apply(t, echoConfiguration(configuration, 3, "", "foo0", "foo1"))
	awaitInstances(t, "default", configuration, foo0, foo1)
	want := map[string][]string{foo0: nil, foo1: nil}
	for i, step := range []struct{ resource, instance string }{
		{foo0, foo0}, {configuration, foo1}, // 3 slots of foo1 are free and 2 of foo0
		{foo1, foo1}, {configuration, foo0}, // 2 slots of foo0 are free and 1 of foo1
	} {
		name := fmt.Sprintf("free-%d", i)
		apply(t, ownPod(name, step.resource))
		holder := awaitReadyPod(t, "default", name).Spec.NodeName
		if step.resource == configuration {
			holder = "C:" + holder
		}
		want[step.instance] = append(want[step.instance], holder)
		for _, instance := range instances(t, "default", configuration) {
			require.ElementsMatch(t, want[instance.Name], slotHolders(instance.Spec.DeviceUsage), "%s after %s", instance.Name, name)
		}
	}
}

// slotHolders returns the holders of the slots that are not free, as <node>, C:<node> or D:<node>.
func slotHolders(usage map[string]string) (holders []string) {
	for _, holder := range usage {
		if level, rest, ok := strings.Cut(holder, ":"); ok {
			_, node, _ := strings.Cut(rest, ":")
			holder = level + ":" + node
		}
		if holder != "" {
			holders = append(holders, holder)
		}
	}
	return holders
}

// holderNodes returns the node of each slot that is not free.
func holderNodes(usage map[string]string) (nodes []string) {
	for _, holder := range slotHolders(usage) {
		nodes = append(nodes, holder[strings.LastIndex(holder, ":")+1:])
	}
	return nodes
}

// retriedPod is the example of the proposal: a pod requests two devices on a node whose virtual
// devices are slots of the same Instance, because no slot of the other one is free. It is refused,
// and granted after the slots that no pod uses were reclaimed. One of these is the slot that its
// init container got before.
func retriedPod(t *testing.T) {
	onlyDevicePlugins(t, "the kubelet refuses a Pod")
	const beside = "e2e-beside-8120fe"
	const configuration, foo0, foo1 = "e2e-retry", "e2e-retry-8120fe", "e2e-retry-a19705"
	node, other := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	apply(t, echoConfiguration("e2e-beside", 1, "", "foo0"))
	apply(t, echoConfiguration(configuration, 2, "", "foo0", "foo1"))
	awaitInstances(t, "default", configuration, foo0, foo1)
	awaitAllocatable(t, other.Name(), foo1, 2)
	awaitAllocatable(t, node.Name(), beside, 1)
	holder := onNode(other, twoDevices("retry-holder", foo1))
	apply(t, holder)
	awaitReadyPod(t, "default", "retry-holder")
	_, err := akri.Kubectl(t.Context(), "", "patch", "akrii", foo0, "--type=merge", "--patch",
		fmt.Sprintf(`{"spec": {"deviceUsage": {"%[1]s-0": "C:0:%[2]s", "%[1]s-1": "C:1:%[2]s"}}}`, foo0, node.Name()))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, mesh.AwaitOffered(ctx, node, akriv0.ResourceName(configuration), "0", "1"))

	apply(t, onNode(node, strings.Replace(twoDevices("retry-refused", configuration), "  containers:", `  initContainers:
  - name: init
    image: ghcr.io/akri-mesh/registrar:dev
    imagePullPolicy: IfNotPresent
    args: ["--version"]
    resources: {limits: {"akri.sh/`+beside+`": "1"}}
  containers:`, 1)))
	awaitPod(t, "retry-refused", "the refusal", func(pod *corev1.Pod) bool {
		return pod.Status.Reason == "UnexpectedAdmissionError" && strings.Contains(pod.Status.Message, "are slots of the same Instance "+foo0)
	})

	refused := time.Now()
	awaitFree(t, beside)
	t.Logf("the slot of the init container is free %s after the refusal", time.Since(refused).Round(time.Millisecond))
	require.Equal(t, map[string]int{"unconfirmed": 1}, releases(t, akriv0.SlotName(beside, 0)))
	require.NoError(t, akri.DeleteText(t.Context(), holder))
	awaitFree(t, foo0)
	awaitFree(t, foo1)
	for i := range 2 {
		require.Equal(t, map[string]int{"unconfirmed": 1}, releases(t, akriv0.SlotName(foo0, i)))
		require.Equal(t, map[string]int{"idle": 1}, releases(t, akriv0.SlotName(foo1, i)))
	}
	require.NoError(t, mesh.AwaitOffered(ctx, node, akriv0.ResourceName(configuration), "0", "1"))
	apply(t, onNode(node, twoDevices("retry-granted", configuration)))
	awaitReadyPod(t, "default", "retry-granted")
	for _, instance := range instances(t, "default", configuration) {
		require.Equal(t, []string{"C:" + node.Name()}, slotHolders(instance.Spec.DeviceUsage), instance.Name)
	}
}
