package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// refusedClaims checks a Pod that the scheduler places although instance-writer refuses its slot. A
// claim of two Pods on two nodes is such a case: the scheduler counts one slot, each node reserves
// one. The Pod waits and starts when a slot is free. With AKRI_E2E_LONG=1 a Pod waits until the
// preparation fails after 40 s, and an Event names the holders.
func refusedClaims(t *testing.T) {
	const freed, kept = "e2e-refused-8120fe", "e2e-refused-a19705"
	node, other := akri.Cluster.Nodes()[1], akri.Cluster.Nodes()[0]
	apply(t, echoConfiguration("e2e-refused", 2, "", "foo0", "foo1"))
	refuse(t, freed, other, node)
	service := map[bool]string{false: "dra-kubelet-plugin", true: `agent","part":"dra-kubelet-plugin`}[selected.process("dra-kubelet-plugin") == "agent"]
	awaitLog(t, pluginOn(t, node).Name, `"a claim waits to be prepared","service":"`+service+`","claim":"default/`+freed+`"`)
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), freed+"-first", metav1.DeleteOptions{}))
	awaitReadyPod(t, "default", freed)

	if !runsLong() {
		return
	}
	// The slot of a device plugin would be released before the node gives up.
	apply(t, namedClaim(kept))
	apply(t, selecting(other, claimingPod(kept+"-first", kept)))
	apply(t, selecting(other, ownPod(kept+"-second", kept)))
	awaitReadyPod(t, "default", kept+"-first")
	second := awaitReadyPod(t, "default", kept+"-second")
	apply(t, selecting(node, claimingPod(kept, kept)))
	holder := func(claim string) string {
		return "a ResourceClaim with uid " + claimUID(t, claim) + " on node " + other.Name()
	}
	holders := []string{holder(kept), holder(second.Status.ExtendedResourceClaimStatus.ResourceClaimName)}
	failed := metav1.ListOptions{FieldSelector: "involvedObject.name=" + kept + ",reason=FailedPrepareDynamicResources"}
	awaitObjects(t, "an Event with the holders", akri.Kubernetes.CoreV1().Events("default"), failed, func(events []corev1.Event) error {
		if !slices.ContainsFunc(events, func(event corev1.Event) bool {
			return strings.Contains(event.Message, holders[0]) && strings.Contains(event.Message, holders[1])
		}) {
			return fmt.Errorf("no Event contains %q: %v", holders, events)
		}
		return nil
	})
	brokenCluster{
		object: "pod " + kept,
		cause:  "ClaimNotPrepared", message: holders[0], remedy: "kubectl akri slots",
	}.check(t)
}

// refuse runs a Pod with a claim for a slot of the Instance on the other node, and starts one with
// the same claim on the node. The second slot is recorded for the device plugin of the node.
func refuse(t *testing.T, instance string, other, node cluster.Node) {
	t.Helper()
	apply(t, namedClaim(instance))
	apply(t, selecting(other, claimingPod(instance+"-first", instance)))
	awaitReadyPod(t, "default", instance+"-first")
	takeFreeSlot(t, instance, node.Name())
	apply(t, selecting(node, claimingPod(instance, instance)))
}

// deletedClaims deletes the claim of a Pod's extended resources while the scheduler binds the Pod,
// as the garbage collector does if the Pod is deleted then. kube-scheduler keeps the device for two
// minutes, and retries the Pods that wait for it after five, or when a slice changes.
func deletedClaims(t *testing.T) {
	const instance, attempts = "e2e-bound-8120fe", 20
	onlyLong(t, "takes more than two minutes")
	apply(t, echoConfiguration("e2e-bound", 1, "", "foo0"))
	awaitSlice(t, instance, true)
	for attempt := range attempts {
		bound, waiting := fmt.Sprint("bound-", attempt), fmt.Sprint("waiting-", attempt)
		deleteClaimWhenCreated(t, bound, ownPod(bound, instance))
		apply(t, ownPod(waiting, instance))
		start := time.Now()
		within(t, 4*time.Minute, func(ctx context.Context) error {
			return mesh.AwaitObject(ctx, "Pod "+waiting, akri.Kubernetes.CoreV1().Pods("default"), waiting, func(pod *corev1.Pod) error {
				if !mesh.Ready(pod) {
					return fmt.Errorf("the conditions are %v", pod.Status.Conditions)
				}
				return nil
			})
		})
		t.Logf("attempt %d: the Pod waited %s", attempt, time.Since(start).Round(time.Second))
		if time.Since(start) > time.Minute {
			return // the scheduler kept the device
		}
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), waiting, metav1.DeleteOptions{}))
		requireClaims(t, instance, 0)
	}
	t.Errorf("kube-scheduler kept the device in none of %d attempts: dra-controller no longer needs to write slices again", attempts)
}

// deleteClaimWhenCreated creates a Pod, and deletes it and its claim as soon as the claim exists.
func deleteClaimWhenCreated(t *testing.T, name, manifest string) {
	t.Helper()
	claims := akri.Kubernetes.ResourceV1().ResourceClaims("default")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	events, err := claims.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer events.Stop()
	apply(t, manifest)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	for event := range events.ResultChan() {
		claim, isClaim := event.Object.(*resourcev1.ResourceClaim)
		if !isClaim || event.Type != watch.Added || claim.GenerateName != name+"-extended-resources-" {
			continue
		}
		require.NoError(t, claims.Delete(t.Context(), claim.Name, now))
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), name, now))
		return
	}
	require.FailNow(t, "no claim was created for "+name)
}

// namedClaim returns a ResourceClaim for a slot of the Instance, which has its name.
func namedClaim(instance string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s, namespace: default}
spec: {devices: {requests: [{name: device, exactly: {deviceClassName: %[1]s.akri.sh}}]}}
`, instance)
}

func claimUID(t *testing.T, name string) string {
	t.Helper()
	claim, err := akri.Kubernetes.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return string(claim.UID)
}

// claimingPod returns a Pod with a ResourceClaim.
func claimingPod(name, claim string) string {
	return strings.Replace(ownPod(name, ""), `limits: {"akri.sh/": "1"}`,
		"claims: [{name: device}]\n  resourceClaims: [{name: device, resourceClaimName: "+claim+"}]", 1)
}

// takeFreeSlot records the free slot of the Instance for the device plugin of a node.
func takeFreeSlot(t *testing.T, instance, node string) {
	t.Helper()
	kubetest.Edit(t, akri.Instances.In("default"), instance, func(object *akriv0.Instance) {
		taken := false
		for slot, holder := range object.Spec.DeviceUsage {
			if holder == "" && !taken {
				object.Spec.DeviceUsage[slot], taken = node, true
			}
		}
		require.True(t, taken, "%v", object.Spec.DeviceUsage)
	})
}

// pluginOn returns the Pod of dra-kubelet-plugin on the node.
func pluginOn(t *testing.T, node cluster.Node) corev1.Pod {
	t.Helper()
	pods := servicePods(t, selected.process("dra-kubelet-plugin"))
	i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name() })
	require.GreaterOrEqual(t, i, 0, "dra-kubelet-plugin does not run on %s", node.Name())
	return pods[i]
}

// killPod kills the first container of a Pod. The returned function waits until it is ready again.
func killPod(t *testing.T, pod corev1.Pod) func() {
	t.Helper()
	node, err := akri.Cluster.Node(pod.Spec.NodeName)
	require.NoError(t, err)
	require.NoError(t, node.KillContainer(t.Context(), pod.Namespace, pod.Name, pod.Spec.Containers[0].Name, syscall.SIGKILL))
	return func() {
		t.Helper()
		awaitPodIn(t, pod.Namespace, pod.Name, "restart of "+pod.Name, func(current *corev1.Pod) bool {
			return mesh.Ready(current) && current.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID
		})
	}
}

// interruptedClaims kills the kubelet and then the plugin while they prepare a claim. A claim is
// deleted while the plugin does not run. Nothing leaks.
func interruptedClaims(t *testing.T) {
	const instance = "e2e-cut-8120fe"
	node := akri.Cluster.Nodes()[0]
	apply(t, echoConfiguration("e2e-cut", 3, "", "foo0"))
	awaitSlice(t, instance, true)
	awaitFiles(t, node, 0) // those of earlier scenarios are gone

	apply(t, selecting(node, ownPod("cut-kubelet", "e2e-cut")))
	awaitFiles(t, node, 1)
	require.NoError(t, node.KillKubelet(t.Context()))
	require.NoError(t, node.StartKubelet(t.Context()))
	returned := time.Now()
	awaitReadyPod(t, "default", "cut-kubelet")
	t.Logf("the Pod is ready %s after the kubelet", time.Since(returned).Round(time.Millisecond))
	requireClaims(t, instance, 1)

	manifest := namedClaim(instance) + "---" + selecting(node, claimingPod("cut-plugin", instance))
	apply(t, manifest)
	plugin := pluginOn(t, node)
	awaitFiles(t, node, 2)
	awaitRestarted := killPod(t, plugin)
	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	requireClaims(t, instance, 1)
	awaitFiles(t, node, 1)
	awaitRestarted()
	require.NoError(t, akri.DeleteText(t.Context(), ownPod("cut-kubelet", "e2e-cut")))
	awaitFree(t, instance)
	awaitFiles(t, node, 0)
}

// replacedPlugins replaces dra-kubelet-plugin on all nodes, as an upgrade does, while Pods start
// and end. No preparation fails: the kubelet would repeat it only after 60 to 90 s.
func replacedPlugins(t *testing.T) {
	if selected.process("dra-kubelet-plugin") == "agent" {
		t.Skip("the agent has one Pod on each node")
	}
	const instance, daemonSet = "e2e-replaced-8120fe", "akri-dra-kubelet-plugin"
	apply(t, echoConfiguration("e2e-replaced", 8, "", "foo0")) // Pods that end have slots, too
	awaitSlice(t, instance, true)
	before := map[string]bool{}
	for _, pod := range servicePods(t, "dra-kubelet-plugin") {
		before[pod.Name] = true
	}
	_, err := akri.Kubectl(t.Context(), "", "rollout", "restart", "--namespace", mesh.Namespace, "daemonset", daemonSet)
	require.NoError(t, err)
	replaced := func() bool {
		return !slices.ContainsFunc(servicePods(t, "dra-kubelet-plugin"), func(pod corev1.Pod) bool { return before[pod.Name] })
	}

	var slowest time.Duration
	started := 0
	for deadline := time.Now().Add(timeout); !replaced(); {
		require.True(t, time.Now().Before(deadline), "the Pods of dra-kubelet-plugin are not replaced")
		for _, node := range akri.Cluster.Nodes() {
			name, created := fmt.Sprint("replaced-", started), time.Now()
			require.NoError(t, akri.ApplyText(t.Context(), selecting(node, ownPod(name, "e2e-replaced"))))
			awaitReadyPod(t, "default", name)
			slowest = max(slowest, time.Since(created))
			require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
			started++
		}
	}
	t.Logf("%d Pods started meanwhile, the slowest in %s", started, slowest.Round(time.Millisecond))
	require.GreaterOrEqual(t, started, len(akri.Cluster.Nodes()), "the plugins were replaced before a Pod started")
	requirePrepared(t, "replaced-")
	awaitFree(t, instance)
	for _, node := range akri.Cluster.Nodes() {
		awaitFiles(t, node, 0)
		require.Len(t, pluginSockets(t, node), 1)
	}
}

// requirePrepared requires that no preparation for a Pod with the prefix has failed.
func requirePrepared(t *testing.T, prefix string) {
	t.Helper()
	failed, err := akri.Kubernetes.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedPrepareDynamicResources"})
	require.NoError(t, err)
	for _, event := range failed.Items {
		require.False(t, strings.HasPrefix(event.InvolvedObject.Name, prefix), "%s: %s", event.InvolvedObject.Name, event.Message)
	}
}

// claimsWithoutPlugin starts and deletes Pods while the container of dra-kubelet-plugin does not
// run. They run and end within 5 s after it is ready again. The kubelet restarts a container that
// was killed before after 10 s or longer.
func claimsWithoutPlugin(t *testing.T) {
	const instance = "e2e-restarted-8120fe"
	node := akri.Cluster.Nodes()[0]
	apply(t, echoConfiguration("e2e-restarted", 4, "", "foo0"))
	awaitSlice(t, instance, true)
	awaitFiles(t, node, 0)
	kills := 2
	if selected.process("dra-kubelet-plugin") == "agent" {
		kills = 1 // earlier scenarios have killed this container
	}
	for i := range kills {
		first, second := fmt.Sprint("restarted-first-", i), fmt.Sprint("restarted-second-", i)
		apply(t, selecting(node, ownPod(first, "e2e-restarted")))
		awaitReadyPod(t, "default", first)
		apply(t, selecting(node, ownPod(second, "e2e-restarted")))
		awaitRestarted := killPod(t, pluginOn(t, node))
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), first, metav1.DeleteOptions{}))
		awaitRestarted()
		returned := time.Now()
		awaitReadyPod(t, "default", second)
		started := time.Since(returned)
		awaitFiles(t, node, 1)
		ended := time.Since(returned)
		t.Logf("a Pod runs %s and another one has ended %s after dra-kubelet-plugin is ready", started.Round(time.Millisecond), ended.Round(time.Millisecond))
		require.Less(t, started, 5*time.Second)
		require.Less(t, ended, 5*time.Second)
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), second, metav1.DeleteOptions{}))
		awaitFiles(t, node, 0)
	}
	requirePrepared(t, "restarted-")
	awaitFree(t, instance)
}

// returnedPlugins kills the relay of dra-kubelet-plugin, or its whole Pod, at random times while
// Pods start. With retryPreparations each of them runs within 5 s after the plugin has returned.
// Otherwise those whose preparation failed wait for 60 to 90 s. Without AKRI_E2E_LONG, the scenario
// ends after two repeated preparations.
func returnedPlugins(t *testing.T) {
	const instance, rounds = "e2e-returned-8120fe", 8
	node := akri.Cluster.Nodes()[0]
	require.NoError(t, akri.Install(t.Context(), "dra-controller.retryPreparations=true"))
	t.Cleanup(func() { require.NoError(t, akri.Install(context.WithoutCancel(t.Context()))) })
	apply(t, echoConfiguration("e2e-returned", rounds, "", "foo0"))
	awaitSlice(t, instance, true)

	repeated, started := 0, 0
	for ; started < rounds && (repeated < 2 || runsLong()); started++ {
		name, plugin := fmt.Sprint("returned-", started), pluginOn(t, node)
		start := func() { apply(t, selecting(node, ownPod(name, "e2e-returned"))) }
		kill := func() { replacePod(t, plugin) } // its next Pod restarts the relay without a delay
		if started%2 == 0 {
			kill = func() {
				require.NoError(t, node.KillContainer(t.Context(), plugin.Namespace, plugin.Name, "relay", syscall.SIGKILL))
			}
		}
		steps := []func(){kill, start}
		if started%4 >= 2 {
			slices.Reverse(steps)
		}
		steps[0]()
		<-time.After(rand.N(300 * time.Millisecond)) // any moment of the start, or of the end of the plugin
		steps[1]()

		awaitReturn(t, plugin)
		returned := time.Now()
		pod := awaitReadyPod(t, "default", name)
		waited := time.Since(returned)
		_, isRepeated := pod.Annotations["akri.sh/plugin-returned"]
		t.Logf("a Pod runs %s after dra-kubelet-plugin has returned, repeated: %t", waited.Round(time.Millisecond), isRepeated)
		require.Less(t, waited, 5*time.Second)
		if isRepeated {
			repeated++
		}
	}
	require.Positive(t, repeated, "no preparation had to be repeated")
	requireClaims(t, instance, started)
}

// awaitReturn waits until the Pod of dra-kubelet-plugin is ready with another relay, or another Pod
// on its node is.
func awaitReturn(t *testing.T, former corev1.Pod) {
	t.Helper()
	plugins := ofService(selected.process("dra-kubelet-plugin"))
	awaitObjects(t, "the plugin on "+former.Spec.NodeName, akri.Kubernetes.CoreV1().Pods(mesh.Namespace), plugins, func(pods []corev1.Pod) error {
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			return pod.Spec.NodeName == former.Spec.NodeName && mesh.Ready(&pod) && relayOf(pod) != relayOf(former)
		}) {
			return errors.New("no Pod is ready with another relay")
		}
		return nil
	})
}

// relayOf returns the id of the container of the relay.
func relayOf(pod corev1.Pod) string {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool { return status.Name == "relay" })
	if i < 0 {
		return ""
	}
	return pod.Status.ContainerStatuses[i].ContainerID
}

// pluginSockets returns the sockets of dra-kubelet-plugin for the kubelet of the node.
func pluginSockets(t *testing.T, node cluster.Node) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(node.KubeletDir(), "plugins_registry", "akri.sh*.sock"))
	require.NoError(t, err)
	return paths
}

// awaitFiles waits until the node has the files of so many claims. It polls often, to find the
// moment of a preparation.
func awaitFiles(t *testing.T, node cluster.Node, count int) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for found := claimFiles(t, node); len(found) != count; found = claimFiles(t, node) {
		if time.Now().After(deadline) {
			logState(t)
			require.FailNow(t, "CDI files", "%s has %v, want %d", node.Name(), found, count)
		}
		<-time.After(time.Millisecond)
	}
}

// claimsWithoutAPI stops the API server for AKRI_E2E_AWAY, kills a plugin meanwhile, and restarts a
// container.
func claimsWithoutAPI(t *testing.T) {
	const instance = "e2e-away-8120fe"
	away, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_E2E_AWAY"), "5s"))
	require.NoError(t, err)
	node := akri.Cluster.Nodes()[1]
	apply(t, echoConfiguration("e2e-away", 3, "", "foo0"))
	apply(t, selecting(node, ownPod("away", "e2e-away")))
	before := awaitReadyPod(t, "default", "away")
	plugin := pluginOn(t, node)
	require.NoError(t, akri.Cluster.KillAPI(t.Context()))
	awaitRestarted := killPod(t, plugin)
	require.NoError(t, node.KillContainer(t.Context(), "default", "away", "main", syscall.SIGKILL))
	<-time.After(away)
	require.NoError(t, akri.Cluster.StartAPI(t.Context()))
	_, err = akri.Cluster.RestartExited(t.Context())
	require.NoError(t, err)
	returned := time.Now()
	awaitRestarted()
	apply(t, selecting(node, ownPod("returned", "e2e-away")))
	awaitReadyPod(t, "default", "returned")
	t.Logf("another Pod is ready %s after the API server", time.Since(returned).Round(time.Millisecond))
	requireClaims(t, instance, 2)
	awaitRestartedContainer(t, before)
	awaitServices(t)
}

// claimsOfRestartedNode restarts a node: its Pods run again with their claims, one slot each.
func claimsOfRestartedNode(t *testing.T) {
	const instance = "e2e-reboot-8120fe"
	node := akri.Cluster.Nodes()[1]
	apply(t, echoConfiguration("e2e-reboot", 6, "", "foo0"))
	var before []*corev1.Pod
	for _, name := range []string{"reboot-1", "reboot-2"} {
		apply(t, selecting(node, ownPod(name, "e2e-reboot")))
		before = append(before, awaitReadyPod(t, "default", name))
	}
	require.NoError(t, node.Stop(t.Context()))
	require.NoError(t, node.Start(t.Context()))
	returned := time.Now()
	for _, pod := range before {
		awaitRestartedContainer(t, pod)
	}
	t.Logf("the Pods are ready %s after the node", time.Since(returned).Round(time.Millisecond))
	requireClaims(t, instance, 2)
	awaitFiles(t, node, 2)
	awaitServices(t)
}

// unpluggedClaims unplugs a device while its claims are being prepared. No kubelet and no plugin
// ends.
func unpluggedClaims(t *testing.T) {
	plugin := selected.process("dra-kubelet-plugin")
	before := restarts(t, plugin)
	flappingDevice(t)
	require.Equal(t, before, restarts(t, plugin))
	for _, node := range akri.Cluster.Nodes() {
		require.Equal(t, cluster.Running, node.State())
	}
}

func restarts(t *testing.T, service string) map[string]int32 {
	t.Helper()
	found := map[string]int32{}
	for _, pod := range servicePods(t, service) {
		for _, container := range pod.Status.ContainerStatuses {
			found[pod.Name] += container.RestartCount
		}
	}
	return found
}
