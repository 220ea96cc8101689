package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// slotsSurvive checks failures of a cluster while two pods, one on each node, hold slots of one
// device.
func slotsSurvive(t *testing.T) {
	apply(t, echoConfiguration("e2e-fail", 2, "", "foo0"))
	awaitTotalAllocatable(t, "e2e-fail-8120fe", 4)
	for _, node := range akri.Cluster.Nodes() {
		apply(t, pinned(deployment("hold-"+node.Name(), "e2e-fail-8120fe", 1), node.Name()))
		awaitRunning(t, "hold-"+node.Name(), 1)
	}
	require.ElementsMatch(t, []string{"node-a", "node-b"}, holders(t))
	for _, failure := range []scenario{
		kubeletRestart,
		selected.second,
		apiServerStopped,
	} {
		t.Run(failure.name(t), func(t *testing.T) {
			before := holding(t)
			failure(t)
			require.ElementsMatch(t, []string{"node-a", "node-b"}, holders(t))
			require.Equal(t, before, holding(t), "the same pods must run")
		})
	}
	inOrder(t, nodeLost)
}

// pinned puts the pods of a deployment on one node.
func pinned(manifest, node string) string {
	return strings.Replace(manifest, "      containers:", "      nodeSelector: {kubernetes.io/hostname: "+node+"}\n      containers:", 1)
}

// holders returns the holders of all slots in use.
func holders(t *testing.T) []string {
	t.Helper()
	return holderNodes(instances(t, "default", "e2e-fail")[0].Spec.DeviceUsage)
}

// holding returns the pods that hold slots, with their restart counts.
func holding(t *testing.T) map[string]int32 {
	t.Helper()
	found := map[string]int32{}
	for _, node := range akri.Cluster.Nodes() {
		for _, pod := range awaitRunning(t, "hold-"+node.Name(), 1) {
			found[string(pod.UID)] = pod.Status.ContainerStatuses[0].RestartCount
		}
	}
	return found
}

func kubeletRestart(t *testing.T) {
	onlyDevicePlugins(t, "the kubelet offers no resources")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	took, err := mesh.RestartKubelet(ctx, akri.Cluster.Nodes()[0], "akri.sh/e2e-fail-8120fe")
	require.NoError(t, err)
	t.Logf("the kubelet offers the resource %s after its socket exists", took.Round(time.Millisecond))
}

func awaitOffered(t *testing.T, node cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, mesh.AwaitOffered(ctx, node, "akri.sh/e2e-fail-8120fe"))
}

// apiServerStopped stops the API server for AKRI_E2E_AWAY.
func apiServerStopped(t *testing.T) {
	away, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_E2E_AWAY"), "5s"))
	require.NoError(t, err)
	known := knownCallers(t)
	require.NoError(t, akri.Cluster.StopAPI(t.Context()))
	known()
	<-time.After(away)
	require.NoError(t, akri.Cluster.StartAPI(t.Context()))
	await(t, "the API server to return nodes", func(ctx context.Context) error {
		_, err := akri.NodeNames(ctx)
		return err
	})
}

// nodeLost checks that a slot stays in use while its node is off, and is free when the node is
// deleted.
func nodeLost(t *testing.T) {
	node := akri.Cluster.Nodes()[1]
	require.NoError(t, node.Stop(t.Context()))
	require.ElementsMatch(t, []string{"node-a", "node-b"}, holders(t))
	require.NoError(t, akri.Kubernetes.CoreV1().Nodes().Delete(t.Context(), node.Name(), metav1.DeleteOptions{}))
	awaitUsage(t, "e2e-fail-8120fe", "to be held by the other node", func(usage map[string]string) bool {
		return slices.Equal(holderNodes(usage), []string{"node-a"})
	})
	require.NoError(t, node.Start(t.Context()))
	awaitRunning(t, "hold-"+node.Name(), 1)
	awaitUsage(t, "e2e-fail-8120fe", "to be held by both nodes", func(usage map[string]string) bool {
		return len(holderNodes(usage)) == 2
	})
	awaitServices(t)
}

// secondHost starts a second device-plugin-host on a node, as an update with surge does.
func secondHost(t *testing.T) {
	onlyDevicePlugins(t, "one process manages the slots of device plugins")
	node := akri.Cluster.Nodes()[0]
	first, second := startSecond(t, node)
	awaitReadyPod(t, mesh.Namespace, second.Name)
	require.NotContains(t, logs(t, second.Name), serving, "the second one must wait")
	require.NoError(t, node.KillContainer(t.Context(), mesh.Namespace, first.Name, first.Spec.Containers[0].Name, syscall.SIGKILL))
	awaitLog(t, second.Name, serving)
	awaitOffered(t, node)
	deletePod(t, second.Name)
	awaitLog(t, first.Name, serving)
	awaitOffered(t, node)
}

// secondAgent checks that a second agent on a node exits and does not affect the first.
func secondAgent(t *testing.T) {
	onlyDevicePlugins(t, "one process manages the slots of device plugins")
	node := akri.Cluster.Nodes()[0]
	before := serviceSockets(t, node)
	_, second := startSecond(t, node)
	awaitLog(t, second.Name, "is in use by another process")
	deletePod(t, second.Name)
	require.Equal(t, before, serviceSockets(t, node))
	awaitOffered(t, node)
}

// serviceSockets returns the sockets of a node's services.
func serviceSockets(t *testing.T, node cluster.Node) []string {
	t.Helper()
	found := slices.Concat(sockets(t, node.AkriDir()), sockets(t, node.RunDir()))
	require.NotEmpty(t, found)
	return found
}

// startSecond starts a second pod of the DaemonSet that serves the node's kubelet, until the test
// ends. It returns both pods. The second one is not on the host network, whose ports the first one
// uses.
func startSecond(t *testing.T, node cluster.Node) (first, second *corev1.Pod) {
	t.Helper()
	daemons, err := akri.Kubernetes.AppsV1().DaemonSets(mesh.Namespace).Get(t.Context(), selected.host, metav1.GetOptions{})
	require.NoError(t, err)
	pods := akri.Kubernetes.CoreV1().Pods(mesh.Namespace)
	found, err := pods.List(t.Context(), metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(daemons.Spec.Selector), FieldSelector: "spec.nodeName=" + node.Name(),
	})
	require.NoError(t, err)
	require.Len(t, found.Items, 1)
	spec := daemons.Spec.Template.Spec
	spec.NodeName, spec.HostNetwork, spec.Containers[0].Ports[0].HostPort = node.Name(), false, 0
	second, err = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { // if the test fails before it deletes the pod
		_ = pods.Delete(context.WithoutCancel(t.Context()), second.Name, metav1.DeleteOptions{})
	})
	return &found.Items[0], second
}

// deletePod deletes one of Akri's pods and waits until it is deleted.
func deletePod(t *testing.T, name string) {
	t.Helper()
	_, err := akri.Kubectl(t.Context(), "", "delete", "pod", "--namespace", mesh.Namespace, name)
	require.NoError(t, err)
}

// serving is the log message of an active device-plugin-host.
const serving = "advertising devices to the kubelet"

func awaitLog(t *testing.T, pod, message string) {
	t.Helper()
	await(t, "log of "+pod+" to contain "+message, func(ctx context.Context) error {
		text, err := akri.Kubectl(ctx, "", "logs", "--namespace", mesh.Namespace, pod)
		if err == nil && !strings.Contains(text, message) {
			err = fmt.Errorf("the log is %s", text)
		}
		return err
	})
}

func logs(t *testing.T, pod string) string {
	t.Helper()
	text, err := akri.Kubectl(t.Context(), "", "logs", "--namespace", mesh.Namespace, pod)
	require.NoError(t, err)
	return text
}
