package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	discoveryv0 "akri.sh/proto/v0"
)

// onceBroker ends for good when its container does.
var onceBroker = strings.Replace(broker, "      containers:", "      restartPolicy: Never\n      containers:", 1)

// endsAtOnce is a broker that has nothing to do.
var endsAtOnce = strings.Replace(strings.Replace(onceBroker, "sample-broker:dev", "registrar:dev", 1),
	"        ports: [{containerPort: 8083}]\n        readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}",
	`        args: ["--version"]`, 1)

// neverStarts is a broker whose image is nowhere: its kubelet has it, and it is pending.
var neverStarts = strings.NewReplacer("sample-broker:dev", "nowhere:dev", "IfNotPresent", "Never").Replace(broker)

// brokersThatChange is the table of what happens to a broker Pod, but for what needs time: see stuckBroker.
func brokersThatChange(t *testing.T) {
	for name, run := range map[string]func(*testing.T){
		"one that failed, succeeded or is unknown is replaced, later each time": endedBroker,
		"one whose device is gone goes too, whatever it was doing":              brokersOfGoneDevices,
		"one whose node does not see the device any more goes, and only that":   brokerOfANodeThatLooksAway,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

func endedBroker(t *testing.T) {
	apply(t, echoConfiguration("e2e-ended", 1, onceBroker, "foo0"))
	for attempt, end := range []func(*testing.T, *corev1.Pod){killedWith(syscall.SIGKILL), killedWith(syscall.SIGTERM), becomesUnknown} {
		former := awaitBrokers(t, "default", "e2e-ended", 1)[0]
		end(t, &former)
		next := awaitNextBroker(t, &former)
		require.Equal(t, fmt.Sprint(attempt+1), next.Annotations["akri.sh/attempt"])
		require.GreaterOrEqual(t, next.CreationTimestamp.Sub(former.CreationTimestamp.Time), time.Second<<attempt)
	}
}

func killedWith(signal syscall.Signal) func(*testing.T, *corev1.Pod) {
	return func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		node, err := akri.Cluster.Node(pod.Spec.NodeName)
		require.NoError(t, err)
		require.NoError(t, node.KillContainer(t.Context(), pod.Namespace, pod.Name, "broker", signal))
	}
}

// becomesUnknown says so again and again, because the kubelet knows better and says that.
func becomesUnknown(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pods := akri.Kubernetes.CoreV1().Pods(pod.Namespace)
	await(t, "a broker of unknown state to go", func(ctx context.Context) error {
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Unknown"}}`, pod.UID)
		if _, err := pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return nil //nolint:nilerr // it is not there, or another one by now
		}
		return fmt.Errorf("%s is still there", pod.Name)
	})
}

// awaitNextBroker waits for another broker of that name.
func awaitNextBroker(t *testing.T, former *corev1.Pod) (next *corev1.Pod) {
	t.Helper()
	await(t, "the broker after "+former.Name, func(ctx context.Context) (err error) {
		next, err = akri.Kubernetes.CoreV1().Pods(former.Namespace).Get(ctx, former.Name, metav1.GetOptions{})
		if err == nil && next.UID == former.UID {
			err = fmt.Errorf("it is the same, %s", next.Status.Phase)
		}
		return err
	})
	return next
}

// brokersOfGoneDevices takes away devices whose brokers run, cannot start, and ended.
func brokersOfGoneDevices(t *testing.T) {
	of := map[string]struct {
		broker string
		phase  corev1.PodPhase
	}{
		"e2e-gone-running":   {broker, corev1.PodRunning},
		"e2e-gone-pending":   {neverStarts, corev1.PodPending},
		"e2e-gone-succeeded": {endsAtOnce, corev1.PodSucceeded},
	}
	for name, c := range of {
		apply(t, echoConfiguration(name, 1, c.broker, "foo0"))
	}
	for name, c := range of {
		awaitBrokersOf(t, name, "foo0", func(pods []corev1.Pod) bool {
			return len(pods) == 1 && pods[0].Status.Phase == c.phase && pods[0].Status.StartTime != nil
		})
		require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration(name, 1, c.broker, "foo1")))
	}
	for name := range of {
		awaitBrokersOf(t, name, "foo0", func(pods []corev1.Pod) bool { return len(pods) == 0 })
		awaitBrokersOf(t, name, "foo1", func(pods []corev1.Pod) bool { return len(pods) == 1 })
	}
}

// awaitBrokersOf waits for the brokers of one device of debug-echo.
func awaitBrokersOf(t *testing.T, configuration, description string, are func([]corev1.Pod) bool) {
	t.Helper()
	instance := instanceName(configuration, description, "", true)
	await(t, "brokers of "+instance, func(ctx context.Context) error {
		pods, err := akri.BrokersOf(ctx, "default", configuration)
		pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Labels["akri.sh/instance"] != instance })
		if err == nil && !are(pods) {
			err = fmt.Errorf("%d are there", len(pods))
			for _, pod := range pods {
				err = fmt.Errorf("%w, %s is %s", err, pod.Name, pod.Status.Phase)
			}
		}
		return err
	})
}

func brokerOfANodeThatLooksAway(t *testing.T) {
	device := &discoveryv0.Device{Id: "camera"}
	nodes := akri.Cluster.Nodes()
	handle(t, nodes[0], "e2eLeft", device)
	away := handle(t, nodes[1], "e2eLeft", device)
	apply(t, configurationOf("e2e-left", "e2eLeft", "")+"  capacity: 2\n  brokerSpec:"+broker+servicesSpec)
	before := podUIDs(awaitBrokers(t, "default", "e2e-left", 2))
	kept, left := nodes[0].Name()+"-"+instanceName("e2e-left", "camera", "", true)+"-pod", nodes[1].Name()
	awaitService(t, "default", "e2e-left-svc", true)

	away.see()
	after := awaitBrokers(t, "default", "e2e-left", 1)
	require.Equal(t, before[kept], podUIDs(after)[kept])
	awaitHolders(t, "e2e-left", nodes[0].Name())
	awaitService(t, "default", "e2e-left-svc", true)

	away.see(device)
	require.Equal(t, before[kept], podUIDs(awaitBrokers(t, "default", "e2e-left", 2))[kept])
	awaitHolders(t, "e2e-left", nodes[0].Name(), left)
}

// awaitHolders waits until these nodes hold the slots of the Configuration's Instances, and are those that the Instances list.
func awaitHolders(t *testing.T, configuration string, want ...string) {
	t.Helper()
	await(t, fmt.Sprintf("%v to be in the Instances of %s", want, configuration), func(ctx context.Context) error {
		found, err := akri.InstancesOf(ctx, "default", configuration)
		if err != nil {
			return err
		}
		var nodes, holders []string
		for _, instance := range found {
			nodes = append(nodes, instance.Spec.Nodes...)
			holders = append(holders, slices.DeleteFunc(values(instance.Spec.DeviceUsage), func(holder string) bool { return holder == "" })...)
		}
		slices.Sort(nodes)
		slices.Sort(holders)
		if !slices.Equal(nodes, want) || !slices.Equal(holders, want) {
			return fmt.Errorf("listed are %v, slots are held by %v", nodes, holders)
		}
		return nil
	})
}
