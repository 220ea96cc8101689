package brokercontroller_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/kube/kubetest"
)

// store creates a Configuration with fields that the Go types do not have.
func (e *testEnv) store(name, spec string) *akriv0.Configuration {
	e.Helper()
	e.configuration(name, `{}`)
	var object map[string]any
	require.NoError(e, yaml.Unmarshal([]byte(spec), &object))
	patch, err := json.Marshal(map[string]any{"spec": object})
	require.NoError(e, err)
	stored, err := e.Configurations.In(e.namespace).Patch(e.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(e, err)
	return stored
}

// hasCondition waits for a condition of the Configuration's generation and returns it.
func (e *testEnv) hasCondition(name, kind string, status metav1.ConditionStatus, reason, text string) metav1.Condition {
	e.Helper()
	var found metav1.Condition
	require.EventuallyWithT(e, func(c *assert.CollectT) {
		configuration, err := e.Configurations.In(e.namespace).Get(e.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		condition := meta.FindStatusCondition(configuration.Status.Conditions, kind)
		require.NotNil(c, condition)
		found = *condition
		require.Equal(c, status, found.Status, found.Message)
		require.Equal(c, reason, found.Reason)
		require.Contains(c, found.Message, text)
		require.Equal(c, configuration.Generation, found.ObservedGeneration)
	}, timeout, pollInterval)
	return found
}

func (e *testEnv) brokersRunning(status metav1.ConditionStatus, reason, text string) {
	e.Helper()
	e.hasCondition("echo", akriv0.ConditionBrokersRunning, status, reason, text)
}

// waitForVerdicts creates a Configuration without a broker and waits until the controller has
// evaluated all verdicts again, and has seen all previous changes of Configurations.
func (e *testEnv) waitForVerdicts(name string) {
	e.Helper()
	e.configuration(name, `{}`)
	e.hasCondition(name, akriv0.ConditionBrokersWorking, metav1.ConditionUnknown, akriv0.ReasonNotNeeded, "")
	e.waitForConfigurations()
}

// A spec that was stored without the webhook is reviewed with the message of the webhook.
func TestSpecValid(t *testing.T) {
	e := newWebhookEnv(t)
	bad := e.store("bad", misspelt)
	e.instance(bad, "8120fe", 1, "node-a")
	e.serve()
	condition := e.hasCondition("bad", akriv0.ConditionSpecValid, metav1.ConditionFalse, akriv0.ReasonInvalidSpec, "imag: Forbidden: unknown field")
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")
	require.ErrorContains(t, e.dryRun("misspelt", misspelt), "denied the request: "+condition.Message)
	e.hasCondition("bad", akriv0.ConditionBrokersRunning, metav1.ConditionUnknown, akriv0.ReasonInvalidSpec, "see SpecValid")
	e.waitForConfigurations()
	require.Empty(t, e.podNames())

	e.edit("bad", podsOnly)
	e.hasCondition("bad", akriv0.ConditionSpecValid, metav1.ConditionTrue, akriv0.ReasonAsExpected, "the spec is valid")
	e.eventuallyNames(e.podNames, "bad-8120fe-pod")
}

func TestOtherPartsOfAnInvalidSpec(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	bad := e.store("bad", strings.Replace(withServices, "instanceServiceSpec: {ports:", "instanceServiceSpec: {port:", 1))
	e.instance(bad, "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "bad-8120fe-pod")
	e.setPhase(corev1.PodRunning, "bad-8120fe-pod")
	e.eventuallyNames(e.serviceNames, "bad-svc")
	e.hasCondition("bad", akriv0.ConditionSpecValid, metav1.ConditionFalse, akriv0.ReasonInvalidSpec, "spec.instanceServiceSpec.port: Forbidden")
	e.hasCondition("bad", akriv0.ConditionBrokersRunning, metav1.ConditionTrue, akriv0.ReasonAsExpected, "1 of 1 brokers run")
	require.Equal(t, []string{"bad-svc"}, e.serviceNames())
}

func TestBrokersRunning(t *testing.T) {
	e := newTestEnv(t)
	stop := e.start()
	c := e.configuration("echo", `{}`)
	e.brokersRunning(metav1.ConditionTrue, akriv0.ReasonNoBroker, "")
	e.edit("echo", podsOnly)
	e.brokersRunning(metav1.ConditionTrue, akriv0.ReasonAsExpected, "no device is found")
	e.instance(c, "8120fe", 2, "node-a", "node-b")
	e.brokersRunning(metav1.ConditionUnknown, akriv0.ReasonStarting, "0 of 2 brokers run")
	e.bind("node-a", podOnA)
	e.bind("node-b", podOnB)

	e.block(podOnA, pulling("ImagePullBackOff", `Back-off pulling image "v1": ErrImagePull: v1: not found`))
	const missing = "0 of 2 brokers run; " + podOnA + ": ErrImagePull: v1: not found; the kubelet tries again at least every 5m"
	e.brokersRunning(metav1.ConditionFalse, "ErrImagePull", missing)
	e.hasEvent("echo", "ErrImagePull", "BrokersRunning is False: "+missing)
	e.setPhase(corev1.PodRunning, podOnB)
	e.brokersRunning(metav1.ConditionFalse, "ErrImagePull", "1 of 2 brokers run; ")

	e.hasCondition("echo", akriv0.ConditionBrokersWorking, metav1.ConditionFalse, string(explain.Broken), "ErrImagePull: v1: not found")

	// The same message in other words, and a new leader.
	writes := e.conditionWrites()
	e.block(podOnA, pulling("ErrImagePull", "v1: not found"))
	e.waitForVerdicts("other-words")
	require.NoError(t, stop())
	require.Equal(t, writes, e.conditionWrites())
	e.start()
	e.waitForVerdicts("new-leader")
	require.Zero(t, e.conditionWrites())
	e.brokersRunning(metav1.ConditionFalse, "ErrImagePull", "1 of 2 brokers run; ")

	e.block(podOnA, corev1.PodStatus{Phase: corev1.PodRunning})
	e.brokersRunning(metav1.ConditionTrue, akriv0.ReasonAsExpected, "2 of 2 brokers run")
	e.hasEvent("echo", akriv0.ReasonAsExpected, "BrokersRunning is True: 2 of 2 brokers run")
}

// An admission webhook of the cluster does not answer.
func TestWebhookOfOthersFails(t *testing.T) {
	e := newTestEnv(t)
	webhooks := e.clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	registration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "policies"}}
	registration.Webhooks = []admissionv1.ValidatingWebhook{{
		Name: "pods.policies.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone),
		ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: e.namespace}},
	}}
	_, err := webhooks.Create(t.Context(), registration, metav1.CreateOptions{})
	require.NoError(t, err)
	var once sync.Once
	remove := func() {
		once.Do(func() {
			require.NoError(t, webhooks.Delete(context.Background(), registration.Name, metav1.DeleteOptions{}))
		})
	}
	defer remove()
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the API server uses new registrations after a moment
		require.ErrorContains(c, e.createPod(e.namespace, `containers: [{name: a, image: a}]`), "failed calling webhook")
	}, timeout, pollInterval)
	e.start()
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.brokersRunning(metav1.ConditionFalse, akriv0.ReasonBrokerRefused, `failed calling webhook "pods.policies.example.com"`)
	remove()
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	e.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	e.brokersRunning(metav1.ConditionTrue, akriv0.ReasonAsExpected, "1 of 1 brokers run")
}

// conditionWrites counts the writes of the last started controller to the status of echo.
func (e *testEnv) conditionWrites() (count int) {
	e.writes.mu.Lock()
	defer e.writes.mu.Unlock()
	for _, request := range e.writes.requests {
		if strings.HasSuffix(request, "configurations/echo/status") {
			count++
		}
	}
	return count
}

func pulling(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "broker", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

// A kubelet writes the status of its Pods, so a stolen node chooses texts that administrators read.
func TestTextOfKubelets(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	c := e.configuration("echo", podsOnly)
	e.instance(c, "8120fe", 2, "node-a", "node-b")
	e.brokersRunning(metav1.ConditionUnknown, akriv0.ReasonStarting, "")

	e.block(podOnA, pulling("ErrImagePull", "v1: \x1b[2J\u202enot found"))
	const escaped = `ErrImagePull: v1: \u001b[2J\u202enot found; `
	e.brokersRunning(metav1.ConditionFalse, "ErrImagePull", escaped)
	e.hasEvent("echo", "ErrImagePull", escaped)

	configuration, err := e.Configurations.In(e.namespace).Get(t.Context(), "echo", metav1.GetOptions{})
	require.NoError(t, err)
	for _, condition := range configuration.Status.Conditions {
		require.True(t, akriv0.IsText(condition.Message), "%s: %q", condition.Type, condition.Message)
	}
}

func TestRefusedBrokerInCondition(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", `{brokerSpec: {brokerPodSpec: {containers: [{name: "Not A Name", image: v1}]}}}`), "8120fe", 1, "node-a")
	e.brokersRunning(metav1.ConditionFalse, akriv0.ReasonBrokerRefused, `Kubernetes refused to create Pod "echo-8120fe-pod": `)
	e.brokersRunning(metav1.ConditionFalse, akriv0.ReasonBrokerRefused, `Akri tries again at least every 5m`)
	e.edit("echo", podsOnly)
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	e.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	e.brokersRunning(metav1.ConditionTrue, akriv0.ReasonAsExpected, "1 of 1 brokers run")
}

func TestJobInCondition(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", oneJob), "8120fe", 1, "node-a")
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job")
	end := func(name string, kinds ...batchv1.JobConditionType) {
		t.Helper()
		kubetest.EditStatus(t, e.Jobs.In(e.namespace), name, func(job *batchv1.Job) {
			now := metav1.Now()
			job.Status.StartTime = &now
			for _, kind := range kinds {
				job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
					Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "too many failures",
				})
			}
			if kinds[len(kinds)-1] == batchv1.JobComplete {
				job.Status.CompletionTime = &now
			}
		})
	}
	end("echo-8120fe-1-job", batchv1.JobFailureTarget, batchv1.JobFailed)
	e.brokersRunning(metav1.ConditionFalse, "BackoffLimitExceeded", "echo-8120fe-1-job: BackoffLimitExceeded: too many failures; it is not tried again")
	e.edit("echo", otherJob)
	e.eventuallyNames(e.jobNames, "echo-8120fe-2-job")
	end("echo-8120fe-2-job", batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	e.brokersRunning(metav1.ConditionTrue, akriv0.ReasonAsExpected, "0 of 1 brokers run, 1 completed")
}
