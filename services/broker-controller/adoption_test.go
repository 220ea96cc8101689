package brokercontroller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestBrokerOfUpstreamAkriIsKept(t *testing.T) {
	e := newTestEnv(t)
	c := e.configuration("echo", podsOnly)
	instance := e.instance(c, "8120fe", 1, "node-a")
	existing := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "echo-8120fe-pod", Namespace: e.namespace,
			Labels: map[string]string{
				"app": "echo-8120fe-pod", "controller": "akri.sh", "akri.sh/configuration": "echo",
				"akri.sh/instance": "echo-8120fe", "akri.sh/target-node": "node-a",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(instance, akriv0.GroupVersion.WithKind("Instance"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "broker", Image: "v0"}}},
	}
	_, err := e.Pods.In(e.namespace).Create(t.Context(), existing, metav1.CreateOptions{})
	require.NoError(t, err)
	e.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	before := e.pod("echo-8120fe-pod").UID
	patch := []byte(`{"metadata":{"finalizers":["node-a","node.b","example.com/kept"]}}`)
	_, err = e.Configurations.In(e.namespace).Patch(t.Context(), "echo", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	e.start()
	e.eventually(func() bool {
		c, err := e.Configurations.In(e.namespace).Get(t.Context(), "echo", metav1.GetOptions{})
		require.NoError(t, err)
		return slices.Equal(c.Finalizers, []string{"example.com/kept"})
	}, "the removal of upstream Akri's finalizers")
	e.instance(c, "a19705", 1, "node-a") // its broker shows that the other Instance has been reconciled
	e.eventuallyNames(e.podNames, "echo-8120fe-pod", "echo-a19705-pod")
	e.eventuallyNames(e.writes.list, "PATCH echo", "POST pods", "POST events")
	require.Equal(t, before, e.pod("echo-8120fe-pod").UID)
}

func TestLongNamesWork(t *testing.T) {
	for length, name := range map[string]string{
		"longest name that the webhook allows": "echo-" + strings.Repeat("x", 45),
		"longer than a label value":            strings.Repeat("long.", 20) + "echo",
		"longest possible name":                strings.Repeat("x", 246),
	} {
		t.Run(length, func(t *testing.T) {
			e := newTestEnv(t)
			stop := e.start()
			node := strings.Repeat("long.", 47) + "node"
			c := e.configuration(name, withServices)
			e.instance(c, "8120fe", 2, node, "node-a")
			e.eventually(func() bool { return len(e.podNames()) == 2 }, "both brokers")
			e.setPhase(corev1.PodRunning, e.podNames()...)
			e.eventually(func() bool { return len(e.serviceNames()) == 2 }, "both Services")

			// A restarted controller finds the same objects.
			require.NoError(t, stop())
			e.start()
			e.instance(c, "a19705", 1, node) // its broker shows that the other Instance has been reconciled
			e.eventuallyNames(e.writes.list, "POST pods", "POST events")
			for _, digest := range []string{"8120fe", "a19705"} {
				require.NoError(t, e.Instances.In(e.namespace).Delete(t.Context(), akriv0.InstanceName(name, digest), metav1.DeleteOptions{}))
			}
			e.eventuallyNames(e.podNames)
			e.eventuallyNames(e.serviceNames)
		})
	}
}

func TestNameTooLongForAResourceHasEvent(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration(strings.Repeat("x", 57), podsOnly), "8120fe", 1, "node-a")
	e.hasEvent(strings.Repeat("x", 57), "BrokerRefused", "name part must be no more than 63")
}

func TestNewInstanceOfSameNameGetsNewBroker(t *testing.T) {
	e := newTestEnv(t)
	stop := e.start()
	c := e.configuration("echo", withServices)
	e.instance(c, "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	e.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	e.eventuallyNames(e.serviceNames, "echo-8120fe-svc", "echo-svc")
	require.NoError(t, stop())
	require.NoError(t, e.Instances.In(e.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	next := e.instance(c, "8120fe", 1, "node-a")
	e.start()
	e.eventually(func() bool {
		pod := e.pod("echo-8120fe-pod")
		return metav1.IsControlledBy(pod, next)
	}, "a broker of the new Instance")
	e.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	e.eventually(func() bool {
		service, err := e.Services.In(e.namespace).Get(t.Context(), "echo-8120fe-svc", metav1.GetOptions{})
		return err == nil && metav1.IsControlledBy(service, next)
	}, "a Service of the new Instance")
}
