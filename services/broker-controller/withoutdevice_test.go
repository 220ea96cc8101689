package brokercontroller_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
)

// node creates a Node whose device plugins have advertised the resources, which are gone.
func (e *testEnv) node(name string, advertised ...string) {
	e.Helper()
	nodes := e.clientset.CoreV1().Nodes()
	node, err := nodes.Create(e.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(e, err)
	e.Cleanup(func() {
		require.NoError(e, e.clientset.CoreV1().Nodes().Delete(context.WithoutCancel(e.Context()), name, metav1.DeleteOptions{}))
	})

	node.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	for _, resourceName := range advertised {
		node.Status.Capacity[corev1.ResourceName(resourceName)] = resource.Quantity{}
	}
	_, err = nodes.UpdateStatus(e.Context(), node, metav1.UpdateOptions{})
	require.NoError(e, err)
}

// TestBrokerWithoutDeviceIsReplaced binds three Pods as kube-scheduler does: one whose node had a
// device plugin, one with a claim, and one with neither, which is replaced.
func TestBrokerWithoutDeviceIsReplaced(t *testing.T) {
	e := newTestEnv(t)
	const advertised, claimed, without = "advertised-echo-8120fe-pod", "claimed-echo-8120fe-pod", "without-echo-8120fe-pod"
	e.node("advertised", akriv0.ResourceName("echo-8120fe"))
	e.node("claimed")
	e.node("without", akriv0.ResourceName("other-8120fe"))
	e.start()
	withZero := strings.Replace(podsOnly, `"1"`, `"1", akri.sh/other: "0"`, 1) // requests nothing
	e.instance(e.configuration("echo", withZero), "8120fe", 3, "advertised", "claimed", "without")
	e.eventuallyNames(e.podNames, advertised, claimed, without)
	uids := map[string]types.UID{}
	for _, pod := range e.podNames() {
		uids[pod] = e.pod(pod).UID
	}

	kubetest.EditStatus(t, e.Pods.In(e.namespace), claimed, func(pod *corev1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: "claim", RequestMappings: []corev1.ContainerExtendedResourceRequest{{
				ContainerName: "broker", ResourceName: akriv0.ResourceName("echo-8120fe"), RequestName: "request",
			}},
		}
	})
	e.setPhase(corev1.PodRunning, advertised, claimed, without)
	e.bind("advertised", advertised)
	e.bind("claimed", claimed)
	e.bind("without", without) // the last change by this test: the Pod can be replaced from now on
	e.eventually(func() bool {
		next := e.pod(without)
		return next.UID != "" && next.UID != uids[without]
	}, "the next Pod")
	e.hasEvent("echo-8120fe", "BrokerRemoved", "Replaced Pod "+without+": the scheduler had bound it without its device.")
	require.Equal(t, "1", e.pod(without).Annotations[akriv0.Group+"/attempt"])
	require.Empty(t, e.pod(without).Spec.NodeName)
	require.Equal(t, uids[advertised], e.pod(advertised).UID)
	require.Equal(t, uids[claimed], e.pod(claimed).UID)
}

// Kubernetes replaces the Pod of a Job, and counts it as a failure.
func TestJobPodWithoutDeviceIsDeleted(t *testing.T) {
	e := newTestEnv(t)
	e.node("without")
	e.node("advertised", akriv0.ResourceName("echo-8120fe"))
	e.start()
	spec := strings.Replace(oneJob, "image: v1", `image: v1, resources: {limits: {"{{PLACEHOLDER}}": "1"}}`, 1)
	e.instance(e.configuration("echo", spec), "8120fe", 1, "without")
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job")
	job, err := e.Jobs.In(e.namespace).Get(t.Context(), "echo-8120fe-1-job", metav1.GetOptions{})
	require.NoError(t, err)

	for _, node := range []string{"advertised", "without"} {
		_, err = e.Pods.In(e.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "on-" + node, Labels: job.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			},
			Spec: job.Spec.Template.Spec,
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		e.setPhase(corev1.PodRunning, "on-"+node)
		e.bind(node, "on-"+node) // the last change by this test: the Pod can be deleted from now on
	}
	e.eventuallyNames(e.podNames, "on-advertised")
	e.hasEvent("echo-8120fe", "BrokerRemoved", "Replaced Pod on-without: the scheduler had bound it without its device.")
}
