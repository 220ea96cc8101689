package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
	akriv0 "akri.sh/libs/apis/akri/v0"
)

// hangingHandler makes handler-debug-echo hang on one node. Other handlers work, also those of the
// same process, and the process stops in time.
func hangingHandler(t *testing.T) {
	hanging, other := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	both := []string{hanging.Name(), other.Name()}
	apply(t, echoConfiguration("e2e-hang", 1, "", "foo0"))
	awaitNodes(t, "e2e-hang-8120fe", both...)
	pod := servicePodOn(t, selected.process("handler-debug-echo"), hanging.Name())
	blockDebugEcho(t, hanging, pod)
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-hang", 1, "", "foo0", "foo1")))
	awaitNodes(t, "e2e-hang-a19705", other.Name())
	awaitNodes(t, "e2e-hang-8120fe", both...)

	applyZram(t, zramConfiguration)
	zram := plug(t, "beside a hanging handler")
	awaitInstances(t, "default", "e2e-zram", values(zramInstances(zram))...)
	awaitNodes(t, "e2e-hang-a19705", other.Name())
	requireUnchanged(t, pod)

	require.Zero(t, deleteAndAwaitExit(t, pod), "the process must stop by itself")
	awaitNodes(t, "e2e-hang-a19705", both...)
}

// blockDebugEcho makes the availability file a FIFO. Opening it blocks in the kernel until another
// process opens it for writing, which none does.
func blockDebugEcho(t *testing.T, node cluster.Node, pod *corev1.Pod) {
	t.Helper()
	path := filepath.Join(node.KubeletDir(), "pods", string(pod.UID), "volumes", "kubernetes.io~empty-dir", "tmp", "debug-echo-availability.txt")
	require.NoError(t, unix.Mkfifo(path, 0o600))
}

// awaitNodes waits until exactly the nodes see the device of the Instance.
func awaitNodes(t *testing.T, instance string, nodes ...string) {
	t.Helper()
	awaitInstance(t, instance, fmt.Sprintf("on %v", nodes), func(object *akriv0.Instance) error {
		if !slices.Equal(object.Spec.Nodes, nodes) {
			return fmt.Errorf("the nodes are %v", object.Spec.Nodes)
		}
		return nil
	})
}

// deleteAndAwaitExit deletes one of Akri's pods and returns the exit code of its container.
func deleteAndAwaitExit(t *testing.T, pod *corev1.Pod) int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	watcher, err := akri.Kubernetes.CoreV1().Pods(mesh.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name})
	require.NoError(t, err)
	defer watcher.Stop()
	require.NoError(t, akri.Kubernetes.CoreV1().Pods(mesh.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	for event := range watcher.ResultChan() {
		current, ok := event.Object.(*corev1.Pod)
		if ok && current.Status.ContainerStatuses[0].State.Terminated != nil {
			return current.Status.ContainerStatuses[0].State.Terminated.ExitCode
		}
	}
	require.Fail(t, "the container did not end")
	return 0
}
