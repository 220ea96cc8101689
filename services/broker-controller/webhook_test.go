package brokercontroller_test

import (
	"bytes"
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	brokercontroller "akri.sh/services/broker-controller"
	"akri.sh/services/broker-controller/internal/admission"
	"akri.sh/services/broker-controller/internal/certificates"
)

const webhookName = "akri-webhook-configuration"

// hooks is what the chart brings: empty objects that the controller fills.
type hooks struct {
	*world
	secrets *kube.Client[*corev1.Secret, *corev1.SecretList]
	hooks   *kube.Client[*admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfigurationList]
}

func newHooks(t *testing.T) hooks {
	t.Helper()
	h := hooks{world: newWorld(t)}
	var err error
	h.secrets, err = kube.NewClient(server.Config(), corev1.SchemeGroupVersion.WithResource("secrets"), corev1.AddToScheme,
		func() *corev1.Secret { return &corev1.Secret{} }, func() *corev1.SecretList { return &corev1.SecretList{} })
	require.NoError(t, err)
	type one = admissionregistrationv1.ValidatingWebhookConfiguration
	type many = admissionregistrationv1.ValidatingWebhookConfigurationList
	h.hooks, err = kube.NewClient(server.Config(), admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"),
		admissionregistrationv1.AddToScheme, func() *one { return &one{} }, func() *many { return &many{} })
	require.NoError(t, err)
	meta := metav1.ObjectMeta{Name: webhookName}
	_, err = h.secrets.In(h.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = h.hooks.In("").Create(t.Context(), &one{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, h.hooks.In("").Delete(context.Background(), webhookName, metav1.DeleteOptions{}))
		h.eventually(func() bool { return h.try("free", misspelt) == nil }, "nobody is asked any more")
	})
	return h
}

const misspelt = `{brokerSpec: {brokerPodSpec: {containers: [{name: broker, imag: v1, resources: {limits: {cpu: lots, "{PLACEHOLDER}": "1"}}}]}}}`

// try applies a Configuration without keeping it.
func (h hooks) try(name, spec string) error {
	object := map[string]any{}
	require.NoError(h, yaml.Unmarshal([]byte(spec), &object))
	object["discoveryHandler"] = map[string]string{"name": "debugEcho"}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": map[string]string{"name": name, "namespace": h.namespace}, "spec": object,
	})
	require.NoError(h, err)
	patch := metav1.PatchOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}}
	_, err = h.Configurations.In(h.namespace).Patch(context.Background(), name, types.ApplyPatchType, text, patch)
	return err
}

func (h hooks) serve(change ...func(*brokercontroller.WebhookConfig)) func() error {
	h.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(h, err)
	address := listener.Addr().String()
	require.NoError(h, listener.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(h, err)
	return h.start(func(c *brokercontroller.Config) {
		c.Webhook = brokercontroller.WebhookConfig{
			Address: address, Name: webhookName, Secret: webhookName, MakeCertificate: true, URL: "https://localhost:" + port + admission.Path,
		}
		for _, f := range change {
			f(&c.Webhook)
		}
	})
}

func (h hooks) secret() *corev1.Secret {
	secret, err := h.secrets.In(h.namespace).Get(h.Context(), webhookName, metav1.GetOptions{})
	require.NoError(h, err)
	return secret
}

func TestTheAPIServerAsksTheWebhook(t *testing.T) {
	h := newHooks(t)
	h.configuration("existing", strings.ReplaceAll(podsOnly, "PLACEHOLDER", "PLACEHOLER"))
	require.NoError(t, h.try("before", misspelt))
	stop := h.serve()
	h.eventually(func() bool { return h.try("misspelt", misspelt) != nil }, "the webhook to be in force")

	err := h.try("misspelt", misspelt)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	for _, want := range []string{
		`admission webhook "akri-webhook-configuration.akri.svc" denied the request`,
		`containers[0].imag: Forbidden: unknown field`,
		`containers[0].resources.limits[cpu]: Invalid value: "lots"`,
		`"{PLACEHOLDER}": is no resource; the device is "{{PLACEHOLDER}}"`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, h.try("good", podsOnly))
	require.ErrorContains(t, h.try(strings.Repeat("a", 57), podsOnly), "metadata.name: Too long")

	certificate := h.secret()
	require.NoError(t, stop())
	// What it does not match works while nobody answers; what it matches is refused.
	require.ErrorContains(t, h.try("good", podsOnly), "failed calling webhook")
	h.patchConfiguration(`{"metadata":{"finalizers":["example.com/x"]}}`)
	h.patchConfiguration(`{"status":{"devices":3}}`, "status")
	require.NoError(t, h.Configurations.In(h.namespace).Delete(t.Context(), "existing", metav1.DeleteOptions{}))
	h.patchConfiguration(`{"metadata":{"finalizers":null}}`)

	// The next one serves with the same certificate and writes nothing.
	h.serve()
	h.eventually(func() bool { return h.try("good", podsOnly) == nil }, "an answer")
	require.Equal(t, certificate.Data, h.secret().Data)
}

// issue puts a certificate into the Secret that is of that age, without the key of its authority:
// as others do.
func (h hooks) issue(age time.Duration) map[string][]byte {
	h.Helper()
	data, _, _, err := certificates.Renewed(time.Now().Add(-age), nil, []string{"localhost"})
	require.NoError(h, err)
	delete(data, certificates.AuthorityKey)
	secret := h.secret()
	secret.Data = data
	_, err = h.secrets.In(h.namespace).Update(h.Context(), secret, metav1.UpdateOptions{})
	require.NoError(h, err)
	return data
}

func (h hooks) trusted() []byte {
	hook, err := h.hooks.In("").Get(h.Context(), webhookName, metav1.GetOptions{})
	require.NoError(h, err)
	if len(hook.Webhooks) == 0 {
		return nil
	}
	return hook.Webhooks[0].ClientConfig.CABundle
}

func TestACertificateOfSomebodyElseIsServedAndFollowed(t *testing.T) {
	h := newHooks(t)
	first := h.issue(0)
	h.serve(func(c *brokercontroller.WebhookConfig) { c.MakeCertificate = false })
	h.eventually(func() bool { return h.try("misspelt", misspelt) != nil }, "the webhook to be in force")
	require.Equal(t, first[certificates.Authority], h.trusted())
	second := h.issue(0)
	h.eventually(func() bool { return bytes.Equal(second[certificates.Authority], h.trusted()) }, "the new authority to be trusted")
	h.eventually(func() bool { return h.try("good", podsOnly) == nil }, "an answer under the new certificate")
	require.Equal(t, second, h.secret().Data, "the Secret is somebody else's")
}

func TestAnAgedCertificateIsRenewed(t *testing.T) {
	h := newHooks(t)
	aged := h.issue(80 * 24 * time.Hour)
	h.serve()
	h.eventually(func() bool { return h.try("misspelt", misspelt) != nil && h.try("good", podsOnly) == nil }, "the webhook to be in force")
	require.NotEqual(t, aged[certificates.Certificate], h.secret().Data[certificates.Certificate])
}

func (h hooks) patchConfiguration(patch string, subresources ...string) {
	h.Helper()
	_, err := h.Configurations.In(h.namespace).Patch(h.Context(), "existing", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	require.NoError(h, err)
}

func TestTheClustersSchemaTellsNewerFieldsFromMistakes(t *testing.T) {
	w := newWorld(t)
	schema := admission.ClusterSchema{REST: w.REST}
	for name, c := range map[string]struct {
		of   any
		want bool
	}{
		"imagePullPolicy": {corev1.Container{}, true},
		"imagePullPolcy":  {corev1.Container{}, false},
		"emptyDir":        {corev1.Volume{}, true},
		"finalizers":      {metav1.ObjectMeta{}, true},
		"ports":           {corev1.ServiceSpec{}, true},
		"capacity":        {akriv0.ConfigurationSpec{}, false},
	} {
		has, err := schema.Has(t.Context(), reflect.TypeOf(c.of), name)
		require.NoError(t, err, name)
		require.Equal(t, c.want, has, name)
	}
}
