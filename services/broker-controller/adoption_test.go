package brokercontroller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestABrokerOfAkriIsTakenOverAsItIs(t *testing.T) {
	w := newWorld(t)
	c := w.configuration("echo", podsOnly)
	instance := w.instance(c, "8120fe", 1, "node-a")
	theirs := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "echo-8120fe-pod", Namespace: w.namespace,
			Labels: map[string]string{
				"app": "echo-8120fe-pod", "controller": "akri.sh", "akri.sh/configuration": "echo",
				"akri.sh/instance": "echo-8120fe", "akri.sh/target-node": "node-a",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(instance, akriv0.GroupVersion.WithKind("Instance"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "broker", Image: "v0"}}},
	}
	_, err := w.Pods.In(w.namespace).Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	w.kubelet(corev1.PodRunning, time.Now(), "echo-8120fe-pod")
	before := w.pod("echo-8120fe-pod").UID
	free := []byte(`{"metadata":{"finalizers":["node-a","node.b","example.com/kept"]}}`)
	_, err = w.Configurations.In(w.namespace).Patch(t.Context(), "echo", types.MergePatchType, free, metav1.PatchOptions{})
	require.NoError(t, err)
	w.start()
	w.eventually(func() bool {
		c, err := w.Configurations.In(w.namespace).Get(t.Context(), "echo", metav1.GetOptions{})
		require.NoError(t, err)
		return slices.Equal(c.Finalizers, []string{"example.com/kept"})
	}, "the finalizers of Akri's agents to go")
	w.instance(c, "a19705", 1, "node-a") // its broker shows that the other has been looked at
	w.eventuallyNames(w.podNames, "echo-8120fe-pod", "echo-a19705-pod")
	w.eventuallyNames(w.writes.list, "PATCH echo", "POST pods", "POST events")
	require.Equal(t, before, w.pod("echo-8120fe-pod").UID)
}

func TestLongNamesWork(t *testing.T) {
	for length, name := range map[string]string{
		"as long as the webhook allows": "echo-" + strings.Repeat("x", 45),
		"longer than a label":           strings.Repeat("long.", 20) + "echo",
		"as long as there can be":       strings.Repeat("x", 246),
	} {
		t.Run(length, func(t *testing.T) {
			w := newWorld(t)
			stop := w.start()
			node := strings.Repeat("long.", 47) + "node"
			c := w.configuration(name, withServices)
			w.instance(c, "8120fe", 2, node, "node-a")
			w.eventually(func() bool { return len(w.podNames()) == 2 }, "both brokers")
			w.kubelet(corev1.PodRunning, time.Now(), w.podNames()...)
			w.eventually(func() bool { return len(w.serviceNames()) == 2 }, "both Services")

			// They are found again.
			require.NoError(t, stop())
			w.start()
			w.instance(c, "a19705", 1, node) // its broker shows that the others have been looked at
			w.eventuallyNames(w.writes.list, "POST pods", "POST events")
			for _, digest := range []string{"8120fe", "a19705"} {
				require.NoError(t, w.Instances.In(w.namespace).Delete(t.Context(), akriv0.InstanceName(name, digest), metav1.DeleteOptions{}))
			}
			w.eventuallyNames(w.podNames)
			w.eventuallyNames(w.serviceNames)
		})
	}
}

func TestANameTooLongForAResourceIsSaid(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.instance(w.configuration(strings.Repeat("x", 57), podsOnly), "8120fe", 1, "node-a")
	w.hasEvent(strings.Repeat("x", 57), "BrokerRefused", "name part must be no more than 63")
}

func TestAnInstanceOfTheSameNameGetsItsOwnBroker(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	c := w.configuration("echo", withServices)
	w.instance(c, "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")
	w.kubelet(corev1.PodRunning, time.Now(), "echo-8120fe-pod")
	w.eventuallyNames(w.serviceNames, "echo-8120fe-svc", "echo-svc")
	require.NoError(t, stop())
	require.NoError(t, w.Instances.In(w.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	next := w.instance(c, "8120fe", 1, "node-a")
	w.start()
	w.eventually(func() bool {
		pod := w.pod("echo-8120fe-pod")
		return metav1.IsControlledBy(pod, next)
	}, "a broker of the new Instance")
	w.kubelet(corev1.PodRunning, time.Now(), "echo-8120fe-pod")
	w.eventually(func() bool {
		service, err := w.Services.In(w.namespace).Get(t.Context(), "echo-8120fe-svc", metav1.GetOptions{})
		return err == nil && metav1.IsControlledBy(service, next)
	}, "a Service of the new Instance")
}
