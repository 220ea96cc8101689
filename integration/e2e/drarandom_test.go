package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
)

// randomFailures runs ten Pods on a shared device with three slots for AKRI_E2E_RANDOM, while Pods,
// services and kubelets end at random and nodes are cordoned. Never do more than three containers
// have the device, no Pod is refused, and no slot is lost.
func randomFailures(t *testing.T) {
	const instance, capacity = "e2e-random-8120fe", 3
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_E2E_RANDOM"), "15s"))
	require.NoError(t, err, "AKRI_E2E_RANDOM")
	apply(t, echoConfiguration("e2e-random", capacity, "", "foo0")+"  brokerProperties: {E2E_RANDOM: held}\n")
	awaitSlice(t, instance, true)
	pods := follow(t, "random")
	apply(t, deployment("random", "e2e-random", 10))
	awaitRunning(t, "random", capacity)
	require.Len(t, holdingContainers(t), capacity, "the containers that have the device")

	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	most := make(chan int)
	go func() { most <- mostHolders(ctx, t) }()
	failures := map[string]int{}
	for ctx.Err() == nil {
		name, fail := randomFailure()
		failures[name]++
		fail(t)
	}
	require.Equal(t, capacity, <-most, "the most containers that had the device at the same time")
	require.Empty(t, pods.rejections(), "pods that a kubelet rejected")
	t.Logf("failures: %v", failures)

	for _, node := range akri.Cluster.Nodes() {
		cordon(t, node.Name(), false)
	}
	scale(t, "random", 0)
	awaitFree(t, instance)
	for _, node := range akri.Cluster.Nodes() {
		awaitFiles(t, node, 0)
	}
	awaitServices(t)
	scale(t, "random", capacity)
	awaitRunning(t, "random", capacity)
	requireClaims(t, instance, capacity)
}

// randomFailure returns one of the failures and its name.
func randomFailure() (string, func(*testing.T)) {
	nodes := akri.Cluster.Nodes()
	node := nodes[rand.IntN(len(nodes))]
	switch n := rand.IntN(10); {
	case n < 6:
		return "deleted Pod", deleteRandomPod
	case n < 8:
		service := []string{selected.process("dra-kubelet-plugin"), "dra-controller", "instance-writer", selected.process("discovery-operator")}[rand.IntN(4)]
		return service, func(t *testing.T) { t.Helper(); replaceRandomPod(t, service) }
	case n < 9:
		return "cordon", func(t *testing.T) { t.Helper(); cordon(t, node.Name(), rand.IntN(2) == 0) }
	default:
		return "kubelet", func(t *testing.T) {
			t.Helper()
			require.NoError(t, node.KillKubelet(t.Context()))
			require.NoError(t, node.StartKubelet(t.Context()))
		}
	}
}

func deleteRandomPod(t *testing.T) {
	t.Helper()
	running, err := runningPods(t.Context(), "random")
	require.NoError(t, err)
	if len(running) > 0 {
		name := running[rand.IntN(len(running))].Name
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	<-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond)
}

func replaceRandomPod(t *testing.T, service string) {
	t.Helper()
	pods := servicePods(t, service)
	replacePod(t, pods[rand.IntN(len(pods))])
}

// replacePod kills a Pod by a deletion without grace period, so that the next one starts at once. A
// container that is killed repeatedly restarts later each time.
func replacePod(t *testing.T, pod corev1.Pod) {
	t.Helper()
	_, err := akri.Kubectl(t.Context(), "", "delete", "pod", "--namespace", pod.Namespace, pod.Name, "--grace-period=0", "--force", "--wait=false")
	require.NoError(t, err)
}

func scale(t *testing.T, deployment string, replicas int) {
	t.Helper()
	_, err := akri.Kubectl(t.Context(), "", "scale", "deployment", deployment, fmt.Sprintf("--replicas=%d", replicas))
	require.NoError(t, err)
}

// mostHolders returns the most containers that had the device at the same time until ctx ended.
func mostHolders(ctx context.Context, t *testing.T) (most int) {
	for ctx.Err() == nil {
		most = max(most, len(holdingContainers(t)))
		<-time.After(10 * time.Millisecond)
	}
	return most
}

// holdingContainers returns the containers that have the device, from the environment of their
// processes. It looks at all of them twice: those that are there both times ran at the same time.
func holdingContainers(t *testing.T) []int {
	running := map[int]bool{}
	for _, node := range akri.Cluster.Nodes() {
		maps.Copy(running, processesOn(t, node))
	}
	maps.DeleteFunc(running, func(pid int, _ bool) bool { return !hasDevice(pid) })
	return slices.DeleteFunc(slices.Collect(maps.Keys(running)), func(pid int) bool { return !hasDevice(pid) })
}

func processesOn(t *testing.T, node cluster.Node) map[int]bool {
	containers, err := node.Containers()
	if err != nil {
		t.Error(err)
	}
	found := map[int]bool{}
	for _, container := range containers {
		found[container.PID] = true
	}
	return found
}

// hasDevice reports whether the process has the property of the device. It is false if the process
// has ended.
func hasDevice(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(text, []byte("E2E_RANDOM=held\x00"))
}
