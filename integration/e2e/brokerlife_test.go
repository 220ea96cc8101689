package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/integration/mesh"
	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"
)

// onceBroker is a broker with restartPolicy Never.
var onceBroker = strings.Replace(broker, "      containers:", "      restartPolicy: Never\n      containers:", 1)

// exitsBroker is a broker that exits immediately with success.
var exitsBroker = strings.Replace(strings.Replace(onceBroker, "sample-broker:dev", "registrar:dev", 1),
	"        ports: [{containerPort: 8083}]\n        readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}",
	`        args: ["--version"]`, 1)

// neverStarts is a broker whose image does not exist. It stays Pending on its node.
var neverStarts = strings.NewReplacer("sample-broker:dev", "missing:dev", "IfNotPresent", "Never").Replace(broker)

// brokersThatChange checks how brokers follow their own state and that of their devices. See also
// stuckBroker and pendingBroker.
func brokersThatChange(t *testing.T) {
	parallel(t,
		endedBroker,
		brokersOfRemovedDevices,
		brokerOfNodeWithoutDevice,
	)
}

// endedBroker checks that an ended broker is replaced with a growing delay.
func endedBroker(t *testing.T) {
	// On one node: while the next broker waits, the other node could take the slot.
	oneNode := "spec:\n  nodes: {names: [" + akri.Cluster.Nodes()[1].Name() + "]}"
	apply(t, strings.Replace(echoConfiguration("e2e-ended", 1, onceBroker, "foo0"), "spec:", oneNode, 1))
	for _, end := range []func(*testing.T, *corev1.Pod){killedWith(syscall.SIGKILL), killedWith(syscall.SIGTERM), becomesUnknown} {
		previous := awaitBrokers(t, "default", "e2e-ended", 1)[0]
		end(t, &previous)
		next := awaitNextBroker(t, &previous)
		attempt := attemptOf(t, &previous) // more than the round if the kubelet has refused a Pod before
		if got := attemptOf(t, next); got != attempt+1 {
			logState(t)
			require.Equal(t, attempt+1, got)
		}
		require.GreaterOrEqual(t, next.CreationTimestamp.Sub(previous.CreationTimestamp.Time), time.Second<<min(attempt, 3))
	}
}

// attemptOf returns the number of brokers that ended before the broker.
func attemptOf(t *testing.T, broker *corev1.Pod) int {
	t.Helper()
	text := cmp.Or(broker.Annotations["akri.sh/attempt"], "0")
	attempt, err := strconv.Atoi(text)
	require.NoError(t, err)
	return attempt
}

func killedWith(signal syscall.Signal) func(*testing.T, *corev1.Pod) {
	return func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		node, err := akri.Cluster.Node(pod.Spec.NodeName)
		require.NoError(t, err)
		require.NoError(t, node.KillContainer(t.Context(), pod.Namespace, pod.Name, "broker", signal))
	}
}

// becomesUnknown sets the phase repeatedly, because the kubelet reports the true one.
func becomesUnknown(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pods := akri.Kubernetes.CoreV1().Pods(pod.Namespace)
	await(t, "removal of a broker in phase Unknown", func(ctx context.Context) error {
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Unknown"}}`, pod.UID)
		if _, err := pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return nil //nolint:nilerr // the broker is deleted or replaced
		}
		return fmt.Errorf("%s still exists", pod.Name)
	})
}

// awaitNextBroker waits for another broker of the same name.
func awaitNextBroker(t *testing.T, previous *corev1.Pod) *corev1.Pod {
	t.Helper()
	return awaitPodIn(t, previous.Namespace, previous.Name, "the broker after "+previous.Name, func(pod *corev1.Pod) bool {
		return pod.UID != previous.UID
	})
}

// brokersOfRemovedDevices removes devices whose brokers run, cannot start, and have ended.
func brokersOfRemovedDevices(t *testing.T) {
	cases := map[string]struct {
		broker string
		phase  corev1.PodPhase
	}{
		"e2e-gone-running":   {broker, corev1.PodRunning},
		"e2e-gone-pending":   {neverStarts, corev1.PodPending},
		"e2e-gone-succeeded": {exitsBroker, corev1.PodSucceeded},
	}
	for name, c := range cases {
		apply(t, echoConfiguration(name, 1, c.broker, "foo0"))
	}
	for name, c := range cases {
		awaitBrokersOf(t, name, "foo0", func(pods []corev1.Pod) bool {
			return len(pods) == 1 && pods[0].Status.Phase == c.phase && pods[0].Status.StartTime != nil
		})
		require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration(name, 1, c.broker, "foo1")))
	}
	for name := range cases {
		awaitBrokersOf(t, name, "foo0", func(pods []corev1.Pod) bool { return len(pods) == 0 })
		awaitBrokersOf(t, name, "foo1", func(pods []corev1.Pod) bool { return len(pods) == 1 })
	}
}

// awaitBrokersOf waits for the brokers of one device of debug-echo.
func awaitBrokersOf(t *testing.T, configuration, description string, condition func([]corev1.Pod) bool) {
	t.Helper()
	instance := instanceName(configuration, description, "", true)
	ofInstance := ofConfiguration(configuration)
	ofInstance.LabelSelector += "," + mesh.InstanceLabel + "=" + instance
	awaitObjects(t, "brokers of "+instance, akri.Kubernetes.CoreV1().Pods("default"), ofInstance, func(pods []corev1.Pod) error {
		if condition(pods) {
			return nil
		}
		err := fmt.Errorf("%d exist", len(pods))
		for _, pod := range pods {
			err = fmt.Errorf("%w, %s is %s", err, pod.Name, pod.Status.Phase)
		}
		return err
	})
}

// brokerOfNodeWithoutDevice checks that only the broker on the node that lost the device leaves.
func brokerOfNodeWithoutDevice(t *testing.T) {
	device := &discoveryv0.Device{Id: "camera"}
	nodes := akri.Cluster.Nodes()
	handle(t, nodes[0], "e2eLeft", device)
	leaving := handle(t, nodes[1], "e2eLeft", device)
	apply(t, configurationOf("e2e-left", "e2eLeft", "")+"  capacity: 2\n  brokerSpec:"+broker+servicesSpec)
	before := podUIDs(awaitBrokers(t, "default", "e2e-left", 2))
	kept, left := nodes[0].Name()+"-"+instanceName("e2e-left", "camera", "", true)+"-pod", nodes[1].Name()
	awaitService(t, "default", "e2e-left-svc", true)

	leaving.send(t)
	after := awaitBrokers(t, "default", "e2e-left", 1)
	require.Equal(t, before[kept], podUIDs(after)[kept])
	awaitHolders(t, "e2e-left", nodes[0].Name())
	awaitService(t, "default", "e2e-left-svc", true)

	leaving.send(t, device)
	require.Equal(t, before[kept], podUIDs(awaitBrokers(t, "default", "e2e-left", 2))[kept])
	awaitHolders(t, "e2e-left", nodes[0].Name(), left)
}

// awaitHolders waits until exactly these nodes hold the slots of the Configuration's Instances and
// are in the Instances' nodes.
func awaitHolders(t *testing.T, configuration string, want ...string) {
	t.Helper()
	what := fmt.Sprintf("nodes and holders %v", want)
	awaitInstancesOf(t, "default", configuration, what, func(found []akriv0.Instance) error {
		var nodes, holders []string
		for _, instance := range found {
			nodes = append(nodes, instance.Spec.Nodes...)
			holders = append(holders, holderNodes(instance.Spec.DeviceUsage)...)
		}
		slices.Sort(nodes)
		slices.Sort(holders)
		if !slices.Equal(nodes, want) || !slices.Equal(holders, want) {
			return fmt.Errorf("nodes are %v, holders are %v", nodes, holders)
		}
		return nil
	})
}
