package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// lookEvery is the resolution of what is timed here.
const lookEvery = 20 * time.Millisecond

// slotsSurvive breaks what a cluster can break under pods that hold slots of one device, one on each node.
func slotsSurvive(t *testing.T) {
	apply(t, echoConfiguration("e2e-fail", 2, "", "foo0"))
	awaitShown(t, "e2e-fail-8120fe", 4)
	for _, node := range akri.Cluster.Nodes() {
		apply(t, pinned(deployment("hold-"+node.Name(), "e2e-fail-8120fe", 1), node.Name()))
		awaitRunning(t, "hold-"+node.Name(), 1)
	}
	require.ElementsMatch(t, []string{"node-a", "node-b"}, holders(t))
	for _, failure := range []scenario{
		{"the kubelet is restarted and finds its plugins again", kubeletRestart},
		chosen().second,
		{"the API server is away", apiServerAway},
	} {
		t.Run(failure.name, func(t *testing.T) {
			before := holding(t)
			failure.run(t)
			require.ElementsMatch(t, []string{"node-a", "node-b"}, holders(t))
			require.Equal(t, before, holding(t), "the same pods run")
		})
	}
	t.Run("a node loses its power, is deleted and comes back", nodeLost)
}

// pinned puts the pods of a deployment on one node.
func pinned(manifest, node string) string {
	return strings.Replace(manifest, "      containers:", "      nodeSelector: {kubernetes.io/hostname: "+node+"}\n      containers:", 1)
}

// holders are those of the slots that are held.
func holders(t *testing.T) []string {
	t.Helper()
	var held []string
	for _, holder := range instances(t, "default", "e2e-fail")[0].Spec.DeviceUsage {
		if holder != "" {
			held = append(held, holder)
		}
	}
	return held
}

// holding are the pods that hold slots, and how often they were restarted.
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
	node := akri.Cluster.Nodes()[0]
	require.NoError(t, node.StopKubelet(t.Context()))
	socket := filepath.Join(node.KubeletDir(), "device-plugins", "kubelet.sock")
	require.NoError(t, os.RemoveAll(socket))
	back := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := os.Stat(socket); err == nil || t.Context().Err() != nil {
				back <- time.Now()
				return
			}
			<-time.After(lookEvery)
		}
	}()
	offered := make(chan error, 1)
	var took time.Duration
	go func() {
		began := <-back
		err := awaitOffered(t.Context(), node, "akri.sh/e2e-fail-8120fe")
		took = time.Since(began)
		offered <- err
	}()
	require.NoError(t, node.StartKubelet(t.Context()))
	require.NoError(t, <-offered)
	t.Logf("the kubelet offers the resource %s after its socket is back", took.Round(time.Millisecond))
	require.LessOrEqual(t, took, time.Second)
}

// awaitOffered waits until the kubelet can allocate devices of the resource, these among them.
func awaitOffered(ctx context.Context, node cluster.Node, resource string, ids ...string) error {
	address := "unix://" + filepath.Join(node.KubeletDir(), "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return mesh.Await(ctx, resource, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		response, err := podresourcesv1.NewPodResourcesListerClient(conn).GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		var offered []string
		for _, devices := range response.GetDevices() {
			if devices.GetResourceName() == resource {
				offered = append(offered, devices.GetDeviceIds()...)
			}
		}
		if len(offered) == 0 || slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(offered, id) }) {
			return fmt.Errorf("offered are %v", offered)
		}
		return nil
	})
}

// apiServerAway takes it away for AKRI_E2E_AWAY.
func apiServerAway(t *testing.T) {
	away, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_E2E_AWAY"), "5s"))
	require.NoError(t, err)
	require.NoError(t, akri.Cluster.StopAPI(t.Context()))
	<-time.After(away)
	require.NoError(t, akri.Cluster.StartAPI(t.Context()))
	await(t, "nodes to be ready", func(ctx context.Context) error {
		_, err := akri.Allocatable(ctx, "node-a", "e2e-fail-8120fe")
		return err
	})
}

// nodeLost checks that a slot is kept while nobody knows what became of its node, and free once the node is gone.
func nodeLost(t *testing.T) {
	node := akri.Cluster.Nodes()[1]
	require.NoError(t, node.Stop(t.Context()))
	require.ElementsMatch(t, []string{"node-a", "node-b"}, holders(t))
	require.NoError(t, akri.Kubernetes.CoreV1().Nodes().Delete(t.Context(), node.Name(), metav1.DeleteOptions{}))
	await(t, "the slot of the node that is gone to be free", func(context.Context) error {
		if held := holders(t); len(held) != 1 || held[0] != "node-a" {
			return fmt.Errorf("held by %v", held)
		}
		return nil
	})
	require.NoError(t, node.Start(t.Context()))
	awaitRunning(t, "hold-"+node.Name(), 1)
	await(t, "both to hold a slot again", func(context.Context) error {
		if held := holders(t); len(held) != 2 {
			return fmt.Errorf("held by %v", held)
		}
		return nil
	})
	awaitServices(t)
}

// secondHost comes beside the first, as an update with surge does.
func secondHost(t *testing.T) {
	node := akri.Cluster.Nodes()[0]
	first, second := beside(t, node)
	awaitReadyPod(t, mesh.Namespace, second.Name)
	require.NotContains(t, logs(t, second.Name), serving, "it stands by")
	require.NoError(t, node.KillContainer(t.Context(), mesh.Namespace, first.Name, first.Spec.Containers[0].Name, syscall.SIGKILL))
	awaitSaid(t, second.Name, serving)
	require.NoError(t, awaitOffered(t.Context(), node, "akri.sh/e2e-fail-8120fe"))
	deletePod(t, second.Name)
	awaitSaid(t, first.Name, serving)
	require.NoError(t, awaitOffered(t.Context(), node, "akri.sh/e2e-fail-8120fe"))
}

// secondAgent ends at once, and leaves the first alone.
func secondAgent(t *testing.T) {
	node := akri.Cluster.Nodes()[0]
	before := served(t, node)
	_, second := beside(t, node)
	awaitSaid(t, second.Name, "is in use by another process")
	deletePod(t, second.Name)
	require.Equal(t, before, served(t, node))
	require.NoError(t, awaitOffered(t.Context(), node, "akri.sh/e2e-fail-8120fe"))
}

// served are the sockets that a node's services are met at.
func served(t *testing.T, node cluster.Node) []string {
	t.Helper()
	found := slices.Concat(sockets(t, node.AkriDir()), sockets(t, node.RunDir()))
	require.NotEmpty(t, found)
	return found
}

// beside starts another pod of the one that serves the node's kubelet until the test ends, and returns both.
func beside(t *testing.T, node cluster.Node) (first, second *corev1.Pod) {
	t.Helper()
	daemons, err := akri.Kubernetes.AppsV1().DaemonSets(mesh.Namespace).Get(t.Context(), chosen().host, metav1.GetOptions{})
	require.NoError(t, err)
	pods := akri.Kubernetes.CoreV1().Pods(mesh.Namespace)
	found, err := pods.List(t.Context(), metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(daemons.Spec.Selector), FieldSelector: "spec.nodeName=" + node.Name(),
	})
	require.NoError(t, err)
	require.Len(t, found.Items, 1)
	spec := daemons.Spec.Template.Spec
	spec.NodeName = node.Name()
	second, err = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { // where the test ends early
		_ = pods.Delete(context.WithoutCancel(t.Context()), second.Name, metav1.DeleteOptions{})
	})
	return &found.Items[0], second
}

// deletePod deletes one of Akri's pods and waits until it is gone.
func deletePod(t *testing.T, name string) {
	t.Helper()
	_, err := akri.Kubectl(t.Context(), "", "delete", "pod", "--namespace", mesh.Namespace, name)
	require.NoError(t, err)
}

// serving is what a device-plugin-host says when it begins to.
const serving = "advertising devices to the kubelet"

func awaitSaid(t *testing.T, pod, what string) {
	t.Helper()
	await(t, pod+" to say "+what, func(ctx context.Context) error {
		text, err := akri.Kubectl(ctx, "", "logs", "--namespace", mesh.Namespace, pod)
		if err == nil && !strings.Contains(text, what) {
			err = fmt.Errorf("it says %s", text)
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
