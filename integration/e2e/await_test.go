package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// await waits until check returns nil. On timeout it logs the state of the cluster and fails.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	awaitWithin(t, timeout, what, check)
}

func awaitWithin(t *testing.T, limit time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := mesh.Await(ctx, what, check); err != nil {
		logState(t)
		require.NoError(t, err)
	}
}

// logState logs the objects, events and logs of the cluster.
func logState(t *testing.T) {
	t.Helper()
	for _, arguments := range [][]string{
		{"get", "akric,akrii,pods,services", "--all-namespaces"},
		{"get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"}, // kubectl sorts only one kind
		{"get", "akric,akrii", "--all-namespaces", "-o", "yaml"},
		{"describe", "nodes"},
		{"logs", "--namespace", mesh.Namespace, "--selector", "app.kubernetes.io/part-of=akri", "--prefix", "--tail=30", "--max-log-requests=50"},
	} {
		output, err := akri.Kubectl(t.Context(), "", arguments...)
		t.Logf("kubectl %v (%v)\n%s", arguments, err, output)
	}
}

func instances(t *testing.T, namespace, configuration string) []akriv0.Instance {
	t.Helper()
	found, err := akri.InstancesOf(t.Context(), namespace, configuration)
	require.NoError(t, err)
	return found
}

// awaitInstances waits until the Configuration has exactly the Instances.
func awaitInstances(t *testing.T, namespace, configuration string, want ...string) []akriv0.Instance {
	t.Helper()
	slices.Sort(want)
	var found []akriv0.Instance
	await(t, fmt.Sprintf("Instances %v of %s", want, configuration), func(ctx context.Context) (err error) {
		if found, err = akri.InstancesOf(ctx, namespace, configuration); err != nil {
			return err
		}
		var names []string
		for _, instance := range found {
			names = append(names, instance.Name)
		}
		if !slices.Equal(names, want) {
			return fmt.Errorf("the Instances are %v", names)
		}
		return nil
	})
	return found
}

// preparationTimeout is the time for a Pod whose preparation failed because dra-kubelet-plugin
// restarted: the kubelet repeats it after up to 90 s.
const preparationTimeout = 150 * time.Second

// awaitBrokers waits until the Configuration has exactly count brokers and all are ready.
func awaitBrokers(t *testing.T, namespace, configuration string, count int) []corev1.Pod {
	t.Helper()
	limit := timeout
	if selected.dynamic {
		limit = preparationTimeout
	}
	var brokers []corev1.Pod
	awaitWithin(t, limit, fmt.Sprintf("%d ready brokers of %s", count, configuration), func(ctx context.Context) (err error) {
		if brokers, err = akri.BrokersOf(ctx, namespace, configuration); err != nil {
			return err
		}
		ready := 0
		for _, broker := range brokers {
			if mesh.Ready(&broker) {
				ready++
			}
		}
		if ready != count || len(brokers) != count {
			return fmt.Errorf("%d of %d brokers are ready", ready, len(brokers))
		}
		return nil
	})
	return brokers
}

func awaitReadyPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	await(t, "pod "+name, func(ctx context.Context) (err error) {
		pod, err = akri.Kubernetes.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !mesh.Ready(pod) {
			err = fmt.Errorf("%s is %s: %s %s", name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
		}
		return err
	})
	return pod
}

func awaitService(t *testing.T, namespace, name string, exists bool) {
	t.Helper()
	await(t, fmt.Sprintf("Service %s, exists: %t", name, exists), func(ctx context.Context) error {
		list, err := akri.Kubernetes.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err == nil && (len(list.Items) == 1) != exists {
			err = fmt.Errorf("%d Services have the name", len(list.Items))
		}
		return err
	})
}

// awaitAllocatable waits for the status of the node. With Dynamic Resource Allocation the scheduler
// does not use it, and Pods wait for their devices.
func awaitAllocatable(t *testing.T, node, resource string, want int64) {
	t.Helper()
	if selected.dynamic {
		return
	}
	await(t, fmt.Sprintf("%d allocatable akri.sh/%s on %s", want, resource, node), func(ctx context.Context) error {
		got, err := akri.Allocatable(ctx, node, resource)
		if err == nil && got != want {
			err = fmt.Errorf("%d are allocatable", got)
		}
		return err
	})
}

// awaitCondition waits for a condition of the Configuration and returns its message.
func awaitCondition(t *testing.T, namespace, name, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	var message string
	await(t, fmt.Sprintf("condition %s=%s (%s) of %s", kind, status, reason, name), func(ctx context.Context) error {
		configuration, err := akri.Configurations.In(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range configuration.Status.Conditions {
			if condition.Type == kind && condition.Status == status && condition.Reason == reason {
				message = condition.Message
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", configuration.Status.Conditions)
	})
	return message
}

func uids[T any](items []T, object func(*T) metav1.Object) map[string]string {
	found := map[string]string{}
	for i := range items {
		o := object(&items[i])
		found[o.GetName()] = string(o.GetUID())
	}
	return found
}

func instanceUIDs(items []akriv0.Instance) map[string]string {
	return uids(items, func(i *akriv0.Instance) metav1.Object { return i })
}

func podUIDs(items []corev1.Pod) map[string]string {
	return uids(items, func(p *corev1.Pod) metav1.Object { return p })
}
