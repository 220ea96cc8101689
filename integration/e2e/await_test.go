package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// pollInterval is the time between two calls of commands and services. A call of `kubectl akri`
// takes about a second of processor time, which the other scenarios need.
const pollInterval = 500 * time.Millisecond

// await calls check until it returns nil. On timeout it logs the state of the cluster and fails. It
// is for commands, files and services. See awaitObjects for the objects of the API server.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	within(t, timeout, func(ctx context.Context) error {
		if err := cluster.Wait(ctx, pollInterval, func() error { return check(ctx) }); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		return nil
	})
}

// awaitObjects watches the objects that the options select until check returns nil. On timeout it
// logs the state of the cluster and fails.
func awaitObjects[T any, L runtime.Object](
	t *testing.T, what string, objects mesh.Objects[L], options metav1.ListOptions, check func([]T) error,
) {
	t.Helper()
	within(t, timeout, func(ctx context.Context) error { return mesh.AwaitObjects(ctx, what, objects, options, check) })
}

// awaitObject watches the named object until check returns nil, and returns it. On timeout it logs
// the state of the cluster and fails.
func awaitObject[T any, L runtime.Object](
	t *testing.T, what string, objects mesh.Objects[L], name string, check func(*T) error,
) (object *T) {
	t.Helper()
	within(t, timeout, func(ctx context.Context) error {
		return mesh.AwaitObject(ctx, what, objects, name, func(current *T) error {
			object = current
			return check(current)
		})
	})
	return object
}

// within calls wait with a time limit. If it fails, within logs the state of the cluster and fails.
func within(t *testing.T, limit time.Duration, wait func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := wait(ctx); err != nil {
		logState(t)
		require.NoError(t, err)
	}
}

// logState logs the objects, events and logs of the cluster.
func logState(t *testing.T) {
	t.Helper()
	var state strings.Builder
	akri.WriteState(t.Context(), &state, 30)
	t.Log(state.String())
}

func instances(t *testing.T, namespace, configuration string) []akriv0.Instance {
	t.Helper()
	found, err := akri.InstancesOf(t.Context(), namespace, configuration)
	require.NoError(t, err)
	return found
}

// awaitInstances waits until the Configuration has exactly the Instances.
func awaitInstances(t *testing.T, namespace, configuration string, want ...string) (found []akriv0.Instance) {
	t.Helper()
	slices.Sort(want)
	awaitInstancesOf(t, namespace, configuration, fmt.Sprintf("Instances %v", want), func(instances []akriv0.Instance) error {
		found = instances
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

// awaitInstancesOf waits until check accepts the Instances of the Configuration.
func awaitInstancesOf(t *testing.T, namespace, configuration, what string, check func([]akriv0.Instance) error) {
	t.Helper()
	all := akri.Instances.In(namespace)
	awaitObjects(t, what+" of "+configuration, all, metav1.ListOptions{}, func(found []akriv0.Instance) error {
		return check(mesh.OfConfiguration(found, configuration))
	})
}

// ofConfiguration selects the brokers and Jobs of a Configuration.
func ofConfiguration(name string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=" + name}
}

// awaitBrokers waits until the Configuration has exactly count brokers and all are ready.
func awaitBrokers(t *testing.T, namespace, configuration string, count int) (brokers []corev1.Pod) {
	t.Helper()
	what := fmt.Sprintf("%d ready brokers of %s", count, configuration)
	awaitObjects(t, what, akri.Kubernetes.CoreV1().Pods(namespace), ofConfiguration(configuration), func(pods []corev1.Pod) error {
		brokers = pods
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

// awaitPod waits until the Pod of the namespace default meets the condition.
func awaitPod(t *testing.T, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return awaitPodIn(t, "default", name, what, is)
}

func awaitPodIn(t *testing.T, namespace, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return awaitObject(t, what, akri.Kubernetes.CoreV1().Pods(namespace), name, func(pod *corev1.Pod) error {
		if !is(pod) {
			return fmt.Errorf("%s is %s: %s %s; %+v", name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message, pod.Status)
		}
		return nil
	})
}

func awaitReadyPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return awaitPodIn(t, namespace, name, "pod "+name, mesh.Ready)
}

func awaitService(t *testing.T, namespace, name string, exists bool) {
	t.Helper()
	what, named := fmt.Sprintf("Service %s, exists: %t", name, exists), metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	awaitObjects(t, what, akri.Kubernetes.CoreV1().Services(namespace), named, func(found []corev1.Service) error {
		if (len(found) == 1) != exists {
			return fmt.Errorf("%d Services have the name", len(found))
		}
		return nil
	})
}

// awaitAllocatable waits for the status of the node. With Dynamic Resource Allocation the scheduler
// does not use it, and Pods wait for their devices.
func awaitAllocatable(t *testing.T, node, resource string, want int64) {
	t.Helper()
	if selected.dynamic {
		return
	}
	what := fmt.Sprintf("%d allocatable akri.sh/%s on %s", want, resource, node)
	awaitObject(t, what, akri.Kubernetes.CoreV1().Nodes(), node, func(node *corev1.Node) error {
		if got := mesh.Allocatable(node, resource); got != want {
			return fmt.Errorf("%d are allocatable", got)
		}
		return nil
	})
}

// awaitTotalAllocatable waits until the sum of the resource over all nodes' allocatable has the
// value.
func awaitTotalAllocatable(t *testing.T, resource string, want int64) {
	t.Helper()
	if selected.dynamic {
		return // see awaitAllocatable
	}
	what := fmt.Sprintf("%d allocatable akri.sh/%s on all nodes", want, resource)
	awaitObjects(t, what, akri.Kubernetes.CoreV1().Nodes(), metav1.ListOptions{}, func(nodes []corev1.Node) error {
		total := int64(0)
		for _, node := range nodes {
			total += mesh.Allocatable(&node, resource)
		}
		if total != want {
			return fmt.Errorf("%d are allocatable", total)
		}
		return nil
	})
}

// awaitCondition waits for a condition of the Configuration and returns its message.
func awaitCondition(t *testing.T, namespace, name, kind string, status metav1.ConditionStatus, reason string) (message string) {
	t.Helper()
	what := fmt.Sprintf("condition %s=%s (%s) of %s", kind, status, reason, name)
	awaitObject(t, what, akri.Configurations.In(namespace), name, func(configuration *akriv0.Configuration) error {
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
