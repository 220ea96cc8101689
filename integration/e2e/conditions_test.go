package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// requireCause checks a cause of BrokersRunning, the verdict that follows from it, and that Ready
// does not depend on it.
func requireCause(t *testing.T, namespace, name, reason, text string) {
	t.Helper()
	message := awaitCondition(t, namespace, name, akriv0.ConditionBrokersRunning, metav1.ConditionFalse, reason)
	require.Contains(t, message, text)
	awaitVerdict(t, namespace, name, akriv0.ConditionBrokersWorking, "Broken")
	awaitCondition(t, namespace, name, akriv0.ConditionReady, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	output, err := akri.Kubectl(t.Context(), "", "get", "akric", "--namespace", namespace, name)
	require.NoError(t, err)
	require.Contains(t, output, "Broken")
}

// awaitVerdict waits for a verdict, which is the reason of a condition, and returns its message.
func awaitVerdict(t *testing.T, namespace, name, condition, state string) (message string) {
	t.Helper()
	status := metav1.ConditionFalse
	switch state {
	case "Works":
		status = metav1.ConditionTrue
	case "Waiting":
		status = metav1.ConditionUnknown
	}
	return awaitCondition(t, namespace, name, condition, status, state)
}

// requireRemedied checks that the brokers run.
func requireRemedied(t *testing.T, namespace, name, message string) {
	t.Helper()
	got := awaitCondition(t, namespace, name, akriv0.ConditionBrokersRunning, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	require.Equal(t, message, got)
	awaitVerdict(t, namespace, name, akriv0.ConditionBrokersWorking, "Works")
}

func brokerWithoutImage(t *testing.T) {
	// Nothing listens on the port, so the kubelet's attempts fail at once.
	missing := strings.Replace(broker, "ghcr.io/akri-mesh/sample-broker", "localhost:1/no-such-broker", 1)
	apply(t, echoConfiguration("e2e-image", 2, missing, "foo0"))
	requireCause(t, "default", "e2e-image", "ErrImagePull", "0 of 2 brokers run; ")
	requireCause(t, "default", "e2e-image", "ErrImagePull", "no-such-broker:dev")
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-image", 2, broker, "foo0")))
	requireRemedied(t, "default", "e2e-image", "2 of 2 brokers run")
}

func brokerBeyondQuota(t *testing.T) {
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: e2e-quota}}")
	quota := "{apiVersion: v1, kind: ResourceQuota, metadata: {name: small, namespace: e2e-quota}, spec: {hard: {pods: %}}}"
	require.NoError(t, akri.ApplyText(t.Context(), strings.Replace(quota, "%", "0", 1)))
	configuration := strings.Replace(echoConfiguration("e2e-quota", 1, broker, "foo0"), "namespace: default", "namespace: e2e-quota", 1)
	apply(t, configuration)
	requireCause(t, "e2e-quota", "e2e-quota", akriv0.ReasonBrokerRefused, "exceeded quota: small")
	require.NoError(t, akri.ApplyText(t.Context(), strings.Replace(quota, "%", "1", 1)))
	requireRemedied(t, "e2e-quota", "e2e-quota", "1 of 1 brokers run")
}

// withoutWebhook applies an invalid Configuration that the webhook would refuse. Its condition has
// the message of the webhook.
func withoutWebhook(t *testing.T) {
	invalid := strings.Replace(echoConfiguration("e2e-invalid", 1, broker, "foo0"), "imagePullPolicy", "imagePullPolcy", 1)
	require.NoError(t, akri.Install(t.Context(), mesh.WithoutWebhook))
	apply(t, invalid)
	message := awaitCondition(t, "default", "e2e-invalid", akriv0.ConditionSpecValid, metav1.ConditionFalse, akriv0.ReasonInvalidSpec)
	awaitCondition(t, "default", "e2e-invalid", akriv0.ConditionReady, metav1.ConditionFalse, akriv0.ReasonInvalidSpec)
	awaitInstances(t, "default", "e2e-invalid", "e2e-invalid-8120fe")

	bindings := akri.Kubernetes.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	require.NoError(t, bindings.Delete(t.Context(), "akri-authors", metav1.DeleteOptions{}))
	output, err := kubectlAkri(t.Context(), "check")
	require.ErrorContains(t, err, "a check has failed")
	require.Contains(t, output, "Warning: values: broker-controller.webhook.enabled=false: invalid Configurations are stored.")
	require.Contains(t, output, "Failed: rights of authors: the ValidatingAdmissionPolicyBinding akri-authors does not exist")

	require.NoError(t, akri.Install(t.Context()))
	_, err = bindings.Get(t.Context(), "akri-authors", metav1.GetOptions{})
	require.NoError(t, err, "the remedy of the check")
	_, err = akri.Kubectl(t.Context(), strings.Replace(invalid, "e2e-invalid", "e2e-other", 1), "apply", "--dry-run=server", "-f", "-")
	require.ErrorContains(t, err, message)
	brokers, err := akri.BrokersOf(t.Context(), "default", "e2e-invalid")
	require.NoError(t, err)
	require.Empty(t, brokers)

	require.NoError(t, akri.ApplyText(t.Context(), strings.Replace(invalid, "imagePullPolcy", "imagePullPolicy", 1)))
	awaitCondition(t, "default", "e2e-invalid", akriv0.ConditionSpecValid, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	requireRemedied(t, "default", "e2e-invalid", "1 of 1 brokers run")
}

// oldYAML applies the Configuration of an early version of upstream Akri, with and without strict
// validation.
func oldYAML(t *testing.T) {
	const configuration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: e2e-old, namespace: default}
spec:
  protocol: {udev: {udevRules: ['KERNEL=="video[0-9]*"']}}
  capacity: 1
  properties: {A: b}
  brokerPodSpec: {containers: [{name: broker, image: broker}]}
`
	for _, validate := range []string{"--validate=true", "--validate=false"} {
		_, err := akri.Kubectl(t.Context(), configuration, "apply", validate, "-f", "-")
		for _, want := range []string{
			"spec.protocol: Forbidden: unknown field; use spec.discoveryHandler",
			"spec.properties: Forbidden: unknown field; use spec.brokerProperties",
			"spec.brokerPodSpec: Forbidden: unknown field; use spec.brokerSpec.brokerPodSpec",
		} {
			require.ErrorContains(t, err, want)
		}
	}
}
