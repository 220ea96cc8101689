package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"akri.sh/integration/mesh"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// shortGrace and shortPending replace the default of five minutes, shortStart that of 30 s,
	// shortReports that of one minute.
	shortGrace   = 8 * time.Second
	shortPending = 15 * time.Second
	shortStart   = 5 * time.Second
	shortReports = 6 * time.Second
	// shortHandlerGrace replaces five minutes. A test sees an Offline handler before it ends.
	shortHandlerGrace = 20 * time.Second
)

// shortTimeouts checks behavior that takes minutes by default. The services keep the short
// timeouts.
func shortTimeouts(t *testing.T) {
	values := append(selected.handlerGrace(shortHandlerGrace),
		"instance-writer.env.AKRI_NODE_GRACE="+shortGrace.String(), "instance-writer.env.AKRI_REPORT_GRACE="+shortReports.String(),
		"broker-controller.env.AKRI_PENDING_MAX="+shortPending.String(),
		"broker-controller.brokerStartTimeout="+shortStart.String())
	require.NoError(t, akri.Install(t.Context(), values...))
	p := startPrometheus(t)
	t.Run("nodeStopsReporting", func(t *testing.T) { nodeStopsReporting(t, p) })
	t.Run("alertsOfServices", func(t *testing.T) { alertsOfServices(t, p, values) })
	parallel(t,
		handlerStates,
		pendingBroker,
		brokersThatCannotRun,
	)
}

// brokersThatCannotRun runs the scenarios that need both nodes, and then those that cordon or stop
// one of them.
func brokersThatCannotRun(t *testing.T) {
	if parallel(t, silentRegistry, stalledLayer) {
		inOrder(t, stuckBroker, brokersOfLostNode)
	}
}

// stuckBroker cordons the node of the only broker of a shared device. The other node gets it and
// keeps it when the first node returns.
func stuckBroker(t *testing.T) {
	apply(t, echoConfiguration("e2e-stuck", 1, broker, "foo0"))
	first := awaitBrokers(t, "default", "e2e-stuck", 1)[0]
	cordon(t, first.Spec.NodeName, true)
	t.Cleanup(func() { cordon(t, first.Spec.NodeName, false) })
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	awaitBrokersOf(t, "e2e-stuck", "foo0", func(pods []corev1.Pod) bool {
		return len(pods) == 1 && pods[0].Spec.NodeName != "" && pods[0].Spec.NodeName != first.Spec.NodeName
	})
	moved := awaitBrokers(t, "default", "e2e-stuck", 1)[0]
	cordon(t, first.Spec.NodeName, false)
	require.Never(t, func() bool {
		pods, err := akri.BrokersOf(t.Context(), "default", "e2e-stuck")
		return err == nil && (len(pods) != 1 || pods[0].UID != moved.UID)
	}, 2*shortStart, time.Second, "a running broker must not be moved")
}

func cordon(t *testing.T, node string, unschedulable bool) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, unschedulable)
	_, err := akri.Kubernetes.CoreV1().Nodes().Patch(context.Background(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// pendingBroker looks at the node that the other test does not stop. Both nodes have a broker, so
// there is no other node for it.
func pendingBroker(t *testing.T) {
	apply(t, echoConfiguration("e2e-pending", 2, "", "foo0"))
	awaitTotalAllocatable(t, "e2e-pending-8120fe", 4)
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-pending", 2, neverStarts, "foo0")))
	name := akri.Cluster.Nodes()[0].Name() + "-e2e-pending-8120fe-pod"
	first := awaitPod(t, name, "a kubelet to admit the broker", func(pod *corev1.Pod) bool { return pod.Status.StartTime != nil })
	// The time counts from when the controller sees the Pod, not by the kubelet's clock.
	setStartTime(t, first, first.Status.StartTime.Add(-time.Hour))
	next := awaitNextBroker(t, first)
	require.GreaterOrEqual(t, next.CreationTimestamp.Sub(first.Status.StartTime.Time), shortPending)
}

// setStartTime sets the time of the Pod's start as a kubelet does whose clock differs.
func setStartTime(t *testing.T, pod *corev1.Pod, start time.Time) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"startTime":%q}}`, start.UTC().Format(time.RFC3339))
	_, err := akri.Kubernetes.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// brokersOfLostNode uses a device that both nodes share and a local device of each node.
func brokersOfLostNode(t *testing.T) {
	apply(t, echoConfiguration("e2e-lost", 2, broker, "foo0")+servicesSpec)
	applyZram(t, zramConfiguration)
	byNode := zramInstances(plug(t, "lost and found"))
	kept, lost := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	awaitComplete := func() state {
		awaitInstances(t, "default", "e2e-zram", values(byNode)...)
		awaitBrokers(t, "default", "e2e-lost", 2)
		awaitBrokers(t, "default", "e2e-zram", 2)
		awaitHolders(t, "e2e-lost", kept.Name(), lost.Name())
		awaitHolders(t, "e2e-zram", kept.Name(), lost.Name())
		awaitService(t, "default", byNode[lost.Name()]+"-svc", true)
		return observe(t, "e2e-lost", "e2e-zram")
	}
	before := awaitComplete()
	services := serviceUIDs(t, "e2e-lost-svc", "e2e-lost-8120fe-svc", "e2e-zram-svc", byNode[kept.Name()]+"-svc")
	keptBrokers := []string{kept.Name() + "-e2e-lost-8120fe-pod", byNode[kept.Name()] + "-pod"}
	awaitLost := func() {
		awaitInstances(t, "default", "e2e-zram", byNode[kept.Name()])
		awaitHolders(t, "e2e-lost", kept.Name())
		awaitHolders(t, "e2e-zram", kept.Name())
		awaitService(t, "default", byNode[lost.Name()]+"-svc", false)
		awaitNoBrokers(t, lost.Name(), "e2e-lost", "e2e-zram")
		current := observe(t, "e2e-lost", "e2e-zram")
		for _, pod := range keptBrokers {
			require.Equal(t, before.brokers[pod], current.brokers[pod], pod)
		}
		require.Equal(t, services, serviceUIDs(t, "e2e-lost-svc", "e2e-lost-8120fe-svc", "e2e-zram-svc", byNode[kept.Name()]+"-svc"))
	}
	awaitBack := func() {
		after := awaitComplete()
		requireSameSlots(t, before.slots, after.slots)
		for _, pod := range keptBrokers {
			require.Equal(t, before.brokers[pod], after.brokers[pod], pod)
		}
		require.Equal(t, services, serviceUIDs(t, "e2e-lost-svc", "e2e-lost-8120fe-svc", "e2e-zram-svc", byNode[kept.Name()]+"-svc"))
	}

	// The node counts as lost although its services still report.
	require.NoError(t, lost.StopKubelet(t.Context()))
	since := markNotReady(t, lost.Name())
	require.Equal(t, before, observe(t, "e2e-lost", "e2e-zram"), "nothing must change within the grace period")
	awaitLost()
	require.GreaterOrEqual(t, time.Since(since), shortGrace)
	require.NoError(t, lost.StartKubelet(t.Context()))
	awaitBack()

	require.NoError(t, akri.Kubernetes.CoreV1().Nodes().Delete(t.Context(), lost.Name(), metav1.DeleteOptions{}))
	awaitLost()
	// A kubelet creates its Node when it starts.
	require.NoError(t, lost.StopKubelet(t.Context()))
	require.NoError(t, lost.StartKubelet(t.Context()))
	awaitBack()
}

// requireSameSlots checks that the nodes hold the same slots as before. With Dynamic Resource
// Allocation a new broker has a new claim, which can get another slot of the device. Its node then
// holds as many slots of the device.
func requireSameSlots(t *testing.T, before, after map[string]string) {
	t.Helper()
	if !selected.dynamic {
		require.Equal(t, before, after)
		return
	}
	require.Equal(t, nodesByDevice(before), nodesByDevice(after))
}

// nodesByDevice returns the nodes that hold slots, sorted, by the name of the Instance. A node that
// holds several slots of a device is listed as often.
func nodesByDevice(slots map[string]string) map[string][]string {
	devices := map[string]map[string]string{}
	for slot, holder := range slots {
		instance := slot[:strings.LastIndex(slot, "-")]
		if devices[instance] == nil {
			devices[instance] = map[string]string{}
		}
		devices[instance][slot] = holder
	}
	nodes := map[string][]string{}
	for instance, usage := range devices {
		nodes[instance] = holderNodes(usage)
		slices.Sort(nodes[instance])
	}
	return nodes
}

// markNotReady sets the Ready condition that Kubernetes sets about 40 s after the last heartbeat,
// with a transition time of a clock that is an hour behind, and returns the time.
func markNotReady(t *testing.T, node string) time.Time {
	t.Helper()
	since := time.Now()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`,
		since.Add(-time.Hour).UTC().Format(time.RFC3339))
	_, err := akri.Kubernetes.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	return since
}

// awaitNoBrokers waits until all brokers of the Configurations on the node are deleted or
// terminating. Without a kubelet a pod stays terminating.
func awaitNoBrokers(t *testing.T, node string, configurations ...string) {
	t.Helper()
	brokers := metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + " in (" + strings.Join(configurations, ",") + ")"}
	awaitObjects(t, "removal of brokers on "+node, akri.Kubernetes.CoreV1().Pods("default"), brokers, func(pods []corev1.Pod) error {
		for _, pod := range pods {
			if pod.Spec.NodeName == node && pod.DeletionTimestamp == nil {
				return fmt.Errorf("%s is not deleted", pod.Name)
			}
		}
		return nil
	})
}

func serviceUIDs(t *testing.T, names ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range names {
		service, err := akri.Kubernetes.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		found[name] = string(service.UID) + " " + service.Spec.ClusterIP
	}
	return found
}
