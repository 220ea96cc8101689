package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

// servesBrokers are the services that a new broker needs.
var servesBrokers = map[string]bool{"device-plugin-host": true, "config-plugin-allocator": true, "agent": true, "broker-controller": true,
	"dra-kubelet-plugin": true, "dra-controller": true}

// state is the state that failures of services must not change.
type state struct {
	instances, brokers, slots map[string]string
	restarts                  int32
}

func observe(t *testing.T, configurations ...string) state {
	t.Helper()
	current := state{instances: map[string]string{}, brokers: map[string]string{}, slots: map[string]string{}}
	for _, configuration := range configurations {
		found := instances(t, "default", configuration)
		maps.Copy(current.instances, instanceUIDs(found))
		for _, instance := range found {
			maps.Copy(current.slots, instance.Spec.DeviceUsage)
		}
		pods, err := akri.BrokersOf(t.Context(), "default", configuration)
		require.NoError(t, err)
		maps.Copy(current.brokers, podUIDs(pods))
		for _, pod := range pods {
			for _, container := range pod.Status.ContainerStatuses {
				current.restarts += container.RestartCount
			}
		}
	}
	return current
}

// servicePods returns the pods of a service that are not being deleted.
func servicePods(t *testing.T, service string) []corev1.Pod {
	t.Helper()
	list, err := akri.Kubernetes.CoreV1().Pods(mesh.Namespace).List(t.Context(), ofService(service))
	require.NoError(t, err)
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NotEmpty(t, pods, "pods of %s", service)
	return pods
}

// ofService selects the Pods and the Deployment of a service.
func ofService(name string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + name}
}

func killServices(t *testing.T) { killEach(t, services()) }

func killNodeServices(t *testing.T) { killEach(t, selected.services) }

func killEach(t *testing.T, services []string) {
	t.Helper()
	apply(t, echoConfiguration("e2e-kill", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-kill", 2)
	applyZram(t, zramConfiguration)
	nodes := len(akri.Cluster.Nodes())
	first := plug(t, "before")
	awaitInstances(t, "default", "e2e-zram", values(zramInstances(first))...)
	awaitBrokers(t, "default", "e2e-zram", nodes)
	before := observe(t, "e2e-kill", "e2e-zram")

	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			killed := time.Now()
			for _, pod := range servicePods(t, service) {
				node, err := akri.Cluster.Node(pod.Spec.NodeName)
				require.NoError(t, err)
				require.NoError(t, node.KillContainer(t.Context(), pod.Namespace, pod.Name, pod.Spec.Containers[0].Name, syscall.SIGKILL))
			}
			second := plug(t, "after "+service)
			awaitInstances(t, "default", "e2e-zram", append(values(zramInstances(first)), values(zramInstances(second))...)...)
			t.Logf("a device that was plugged in after the kill had its Instances %s after the kill", time.Since(killed).Round(time.Millisecond))
			if servesBrokers[service] {
				awaitBrokers(t, "default", "e2e-zram", 2*nodes)
			}
			unplug(t, second)
			awaitInstances(t, "default", "e2e-zram", values(zramInstances(first))...)
			awaitBrokers(t, "default", "e2e-zram", nodes)
			require.Equal(t, before, observe(t, "e2e-kill", "e2e-zram"), "Instances, brokers and slots must not change")
			awaitServiceReady(t, service)
		})
	}
}

func awaitServiceReady(t *testing.T, service string) {
	t.Helper()
	awaitObjects(t, service+" to be ready", akri.Kubernetes.CoreV1().Pods(mesh.Namespace), ofService(service), func(pods []corev1.Pod) error {
		for _, pod := range pods {
			if !mesh.Ready(&pod) {
				return fmt.Errorf("%s is not ready", pod.Name)
			}
		}
		if len(pods) == 0 {
			return errors.New("it has no Pods")
		}
		return nil
	})
}

// awaitServices waits until all services are ready and the webhook responds. Until a restarted
// kubelet has synchronized its pods, they are reported as ready with their previous addresses.
func awaitServices(t *testing.T) {
	t.Helper()
	for _, service := range services() {
		awaitServiceReady(t, service)
	}
	awaitWebhook(t)
}

// awaitWebhook waits until Configurations can be applied.
func awaitWebhook(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, akri.AwaitWebhook(ctx))
}
