package dracontroller_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	dracontroller "akri.sh/services/dra-controller"
)

const (
	podPolicy = "akri-dra-controller-pods"
	returned  = "akri.sh/plugin-returned"
)

// addClaim creates a ResourceClaim with a device of the driver.
func (f *fixture) addClaim(name, driver string) {
	f.Helper()
	claims := f.clientset.ResourceV1().ResourceClaims(namespace)
	create(f.T, claims, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "camera", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: driver}},
		}}},
	})
	f.Cleanup(func() { require.NoError(f, claims.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	kubetest.EditStatus(f, claims, name, func(claim *resourcev1.ResourceClaim) {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "camera", Driver: driver, Pool: "default/node/a", Device: "cameras-8120fe"},
		}}}
	})
}

// addPod creates a Pod on a node with a status, as the scheduler and the kubelet do.
func (f *fixture) addPod(pod *corev1.Pod, status corev1.PodStatus) {
	f.Helper()
	pods := f.clientset.CoreV1().Pods(namespace)
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "cluster.invalid/pause:1"}}
	create(f.T, pods, pod)
	f.Cleanup(func() {
		require.NoError(f, pods.Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})
	f.setStatus(pod.Name, status)
}

func (f *fixture) setStatus(name string, status corev1.PodStatus) {
	f.Helper()
	kubetest.EditStatus(f, f.clientset.CoreV1().Pods(namespace), name, func(pod *corev1.Pod) { pod.Status = status })
}

// addPlugin creates a Pod of dra-kubelet-plugin that is ready since the time.
func (f *fixture) addPlugin(name, node string, since time.Time) {
	f.Helper()
	plugin := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/component": "dra-kubelet-plugin"}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	f.addPod(plugin, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
	}})
}

// claiming returns a Pod on a node with a claim.
func claiming(name, node, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: node, ResourceClaims: []corev1.PodResourceClaim{{Name: "camera", ResourceClaimName: &claim}},
	}}
}

// startedAt returns the status of a Pod that the kubelet has begun to start.
func startedAt(started time.Time, hasSandbox corev1.ConditionStatus) corev1.PodStatus {
	at := metav1.NewTime(started)
	return corev1.PodStatus{Phase: corev1.PodPending, StartTime: &at, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: hasSandbox, LastTransitionTime: at},
	}}
}

// addPolicy creates a policy that refuses changes of labels. That of the chart is tested with the
// chart.
func (f *fixture) addPolicy() {
	f.Helper()
	admission := f.clientset.AdmissionregistrationV1()
	fail := admissionv1.Fail
	create(f.T, admission.ValidatingAdmissionPolicies(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: podPolicy},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "object.metadata.?labels == oldObject.metadata.?labels"}},
		},
	})
	create(f.T, admission.ValidatingAdmissionPolicyBindings(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: podPolicy},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: podPolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	})
	f.Cleanup(func() {
		require.NoError(f, admission.ValidatingAdmissionPolicies().Delete(context.Background(), podPolicy, metav1.DeleteOptions{}))
		require.NoError(f, admission.ValidatingAdmissionPolicyBindings().Delete(context.Background(), podPolicy, metav1.DeleteOptions{}))
	})
}

// awaitReturned waits until the Pod has the time of the return of its plugin.
func (f *fixture) awaitReturned(name string, since time.Time) {
	f.Helper()
	f.eventually(func() bool {
		pod, err := f.clientset.CoreV1().Pods(namespace).Get(f.Context(), name, metav1.GetOptions{})
		require.NoError(f, err)
		return pod.Annotations[returned] == since.UTC().Format(time.RFC3339)
	})
}

// A Pod that waits for a device of Akri is changed when the plugin of its node has returned, in
// whatever order its objects appear, and once. Others are not changed, and none without the policy.
func TestPreparationsAreRetried(t *testing.T) {
	f := newFixture(t, server)
	create(t, f.clientset.ResourceV1().DeviceClasses(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver}})
	f.addClaim("of-akri", akriv0.Driver)
	f.addClaim("of-another", "gpu.example.com")
	started := time.Now().Add(-time.Minute).Truncate(time.Second)
	since := started.Add(10 * time.Second)
	waits, runs := startedAt(started, corev1.ConditionFalse), startedAt(started, corev1.ConditionTrue)
	f.addPod(claiming("waiting", "a", "of-akri"), waits)
	f.addPod(claiming("other-driver", "a", "of-another"), waits)
	f.addPod(claiming("other-node", "b", "of-akri"), waits)
	f.addPod(claiming("has-sandbox", "a", "of-akri"), runs)
	f.addPod(claiming("later", "a", "of-akri"), startedAt(since.Add(time.Second), corev1.ConditionFalse))
	f.addPod(claiming("not-acknowledged", "a", "of-akri"), corev1.PodStatus{Phase: corev1.PodPending})
	f.addPlugin("plugin-b", "b", started.Add(-time.Second))

	f.run(dracontroller.Config{RetryPreparations: true})
	f.settle()
	f.addPlugin("plugin-a", "a", since)
	f.eventually(func() bool {
		return slices.ContainsFunc(f.logged.All(), func(entry observer.LoggedEntry) bool {
			return entry.Message == "making the kubelet sync a Pod failed, retrying"
		})
	})
	require.Empty(t, f.settle(), "without the policy no Pod is changed")

	f.addPolicy()
	f.awaitReturned("waiting", since)
	require.Equal(t, []string{"PATCH waiting"}, f.settle())

	// The claim, the Pod and the plugin in other orders.
	f.addPod(claiming("early", "a", "late-claim"), waits)
	f.settle()
	f.addClaim("late-claim", akriv0.Driver)
	f.awaitReturned("early", since)
	f.addPod(claiming("last", "a", "of-akri"), waits)
	f.awaitReturned("last", since)
	f.setStatus("not-acknowledged", waits)
	f.awaitReturned("not-acknowledged", since)
	require.ElementsMatch(t, []string{"PATCH early", "PATCH last", "PATCH not-acknowledged"}, f.settle())

	// The plugin restarts. A Pod that has got its devices meanwhile is not changed.
	f.setStatus("last", runs)
	again := since.Add(30 * time.Second)
	patch := []byte(`{"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "` + again.UTC().Format(time.RFC3339) + `"}]}}`)
	_, err := f.clientset.CoreV1().Pods(namespace).Patch(t.Context(), "plugin-a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	for _, name := range []string{"waiting", "early", "not-acknowledged", "later"} {
		f.awaitReturned(name, again)
	}
	require.ElementsMatch(t, []string{"PATCH waiting", "PATCH early", "PATCH not-acknowledged", "PATCH later"}, f.settle())
}
