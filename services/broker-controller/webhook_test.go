package brokercontroller_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	brokercontroller "akri.sh/services/broker-controller"
	"akri.sh/services/broker-controller/internal/admission"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/webhook"
)

const webhookName = "akri-webhook-configuration"

// webhookEnv is a testEnv with the empty objects of the chart.
type webhookEnv struct{ *testEnv }

func newWebhookEnv(t *testing.T) webhookEnv {
	t.Helper()
	e := webhookEnv{newTestEnv(t)}
	meta := metav1.ObjectMeta{Name: webhookName}
	_, err := e.clientset.CoreV1().Secrets(e.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = e.registrations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.registrations().Delete(context.Background(), webhookName, metav1.DeleteOptions{}))
		e.eventually(func() bool { return e.dryRun("free", misspelt) == nil }, "the removal of the webhook")
	})
	return e
}

func (e webhookEnv) registrations() admissionregistrationv1client.ValidatingWebhookConfigurationInterface {
	return e.clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

const misspelt = `{brokerSpec: {brokerPodSpec: {containers: [{name: broker, imag: v1, resources: {limits: {cpu: lots, "{PLACEHOLDER}": "1"}}}]}}}`

// dryRun applies a Configuration in a dry run.
func (e webhookEnv) dryRun(name, spec string) error {
	object := map[string]any{}
	require.NoError(e, yaml.Unmarshal([]byte(spec), &object))
	object["discoveryHandler"] = map[string]string{"name": "debugEcho"}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": map[string]string{"name": name, "namespace": e.namespace}, "spec": object,
	})
	require.NoError(e, err)
	patch := metav1.PatchOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}}
	_, err = e.Configurations.In(e.namespace).Patch(context.Background(), name, types.ApplyPatchType, text, patch)
	return err
}

func (e webhookEnv) serve(options ...func(*brokercontroller.WebhookConfig)) func() error {
	e.Helper()
	return e.start(e.webhookConfig(options...))
}

// webhookConfig enables the webhook on a free port.
func (e webhookEnv) webhookConfig(options ...func(*brokercontroller.WebhookConfig)) func(*brokercontroller.Config) {
	e.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(e, err)
	address := listener.Addr().String()
	require.NoError(e, listener.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(e, err)
	return func(c *brokercontroller.Config) {
		c.Webhook = brokercontroller.WebhookConfig{
			Address: address, Name: webhookName, Secret: webhookName, MakeCertificate: true, URL: "https://localhost:" + port + admission.Path,
			SettleTime: 200 * time.Millisecond,
		}
		for _, f := range options {
			f(&c.Webhook)
		}
	}
}

func (e webhookEnv) secret() *corev1.Secret {
	secret, err := e.clientset.CoreV1().Secrets(e.namespace).Get(e.Context(), webhookName, metav1.GetOptions{})
	require.NoError(e, err)
	return secret
}

func (e webhookEnv) editSecret(change func(*corev1.Secret)) {
	e.Helper()
	kubetest.Edit(e, e.clientset.CoreV1().Secrets(e.namespace), webhookName, change)
}

func TestWebhookRefusesConfigurations(t *testing.T) {
	e := newWebhookEnv(t)
	e.configuration("existing", strings.ReplaceAll(podsOnly, "PLACEHOLDER", "PLACEHOLER"))
	require.NoError(t, e.dryRun("before", misspelt))
	stop := e.serve()
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")

	err := e.dryRun("misspelt", misspelt)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	for _, message := range []string{
		`admission webhook "akri-webhook-configuration.akri.svc" denied the request`,
		`containers[0].imag: Forbidden: unknown field`,
		`containers[0].resources.limits[cpu]: Invalid value: "lots"`,
		`"{PLACEHOLDER}": is not a resource name; use "{{PLACEHOLDER}}" for the device`,
	} {
		require.ErrorContains(t, err, message)
	}
	require.NoError(t, e.dryRun("good", podsOnly))
	require.ErrorContains(t, e.dryRun(strings.Repeat("a", 57), podsOnly), "metadata.name: Too long")

	e.eventually(func() bool { return e.policy() == admissionregistrationv1.Fail }, "failurePolicy Fail")
	certificate := e.secret()
	require.NoError(t, stop())
	// While no replica runs, the API server refuses changes of specs only.
	require.ErrorContains(t, e.dryRun("good", podsOnly), "failed calling webhook")
	e.patchConfiguration(`{"metadata":{"finalizers":["example.com/x"]}}`)
	e.patchConfiguration(`{"status":{"devices":3}}`, "status")
	require.NoError(t, e.Configurations.In(e.namespace).Delete(t.Context(), "existing", metav1.DeleteOptions{}))
	e.patchConfiguration(`{"metadata":{"finalizers":null}}`)

	// A restarted replica serves with the same certificate.
	e.serve()
	e.eventually(func() bool { return e.dryRun("good", podsOnly) == nil }, "a response")
	require.Equal(t, certificate.Data, e.secret().Data)
}

// TestWebhookReviewsWhatIsBeingDeleted changes the spec of a Configuration that a finalizer keeps:
// all services read it until it is gone.
func TestWebhookReviewsWhatIsBeingDeleted(t *testing.T) {
	e := newWebhookEnv(t)
	e.configuration("existing", podsOnly)
	e.serve()
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")
	e.patchConfiguration(`{"metadata":{"finalizers":["example.com/x"]}}`)
	configurations := e.Configurations.In(e.namespace)
	require.NoError(t, configurations.Delete(t.Context(), "existing", metav1.DeleteOptions{}))

	patch := `{"spec":{"brokerSpec":{"brokerPodSpec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"cpu":"1e-999999999"}}}]}}}}`
	_, err := configurations.Patch(t.Context(), "existing", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "containers[0].resources.limits[cpu]: Invalid value")
	e.patchConfiguration(`{"metadata":{"finalizers":null}}`)
}

// The details of the Configurations of dryRun are empty, which debugEcho refuses.
func TestInvalidDetails(t *testing.T) {
	const path, problem = "spec.discoveryHandler.discoveryDetails: ", "discoveryDetails: descriptions: required"
	for action, c := range map[string]struct {
		refusal  string
		warnings []string
	}{
		"Warn":       {warnings: []string{path + problem}},
		webhook.Deny: {refusal: path + "Invalid value: " + problem},
	} {
		t.Run(action, func(t *testing.T) {
			e := newWebhookEnv(t)
			var received warnings
			config := server.Config()
			config.WarningHandler = &received
			clients, err := cluster.NewClients(config)
			require.NoError(t, err)
			e.Configurations = clients.Configurations
			e.serve(func(c *brokercontroller.WebhookConfig) { c.InvalidDetails = action })
			e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")

			received = nil
			err = e.dryRun("good", podsOnly)
			if c.refusal == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.refusal)
			}
			require.Equal(t, c.warnings, []string(received))
		})
	}
}

// warnings is a rest.WarningHandler that keeps the texts.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// issue writes a certificate of that age into the Secret, without the CA's key, as cert-manager
// does.
func (e webhookEnv) issue(age time.Duration) map[string][]byte {
	e.Helper()
	data, _, _, err := webhook.RenewCertificate(time.Now().Add(-age), nil, []string{"localhost"})
	require.NoError(e, err)
	delete(data, webhook.CAPrivateKeyKey)
	e.editSecret(func(secret *corev1.Secret) { secret.Data = data })
	return data
}

func (e webhookEnv) caBundle() []byte {
	hook, err := e.registrations().Get(e.Context(), webhookName, metav1.GetOptions{})
	require.NoError(e, err)
	if len(hook.Webhooks) == 0 {
		return nil
	}
	return hook.Webhooks[0].ClientConfig.CABundle
}

func (e webhookEnv) policy() admissionregistrationv1.FailurePolicyType {
	hook, err := e.registrations().Get(e.Context(), webhookName, metav1.GetOptions{})
	require.NoError(e, err)
	if len(hook.Webhooks) == 0 {
		return ""
	}
	return *hook.Webhooks[0].FailurePolicy
}

func (e webhookEnv) ready() bool { return e.health.Ready(e.Context()) == nil }

// asStandby makes another process hold the Lease.
func (e webhookEnv) asStandby(c *brokercontroller.Config) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-broker-controller"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)),
			AcquireTime: &metav1.MicroTime{Time: time.Now()}, RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
	_, err := e.clientset.CoordinationV1().Leases(e.namespace).Create(e.Context(), lease, metav1.CreateOptions{})
	require.NoError(e, err)
	c.LeaderElect = true
}

// A replica must become ready while the leader runs without the webhook, which a value disables.
// Otherwise a rolling update would not end.
func TestReadyMeansRegistered(t *testing.T) {
	for name, option := range map[string]func(webhookEnv, *brokercontroller.Config){
		"leader":  func(webhookEnv, *brokercontroller.Config) {},
		"standby": webhookEnv.asStandby,
	} {
		t.Run(name, func(t *testing.T) {
			e := newWebhookEnv(t)
			var unblocked atomic.Bool
			blocked := make(chan struct{}, 100)
			e.wrap = func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(request *http.Request) (*http.Response, error) {
					isUpdate := request.Method == http.MethodPut && strings.HasSuffix(request.URL.Path, "/"+webhookName)
					if isUpdate && strings.Contains(request.URL.Path, "/validatingwebhookconfigurations/") && !unblocked.Load() {
						blocked <- struct{}{}
						return nil, errors.New("blocked")
					}
					return next.RoundTrip(request)
				})
			}
			e.start(e.webhookConfig(), func(c *brokercontroller.Config) { option(e, c) })
			for range 2 { // the second attempt shows that the caches have synced
				<-blocked
			}
			require.ErrorContains(t, e.health.Ready(t.Context()), "webhook: the webhook is not registered yet")
			unblocked.Store(true)
			e.eventually(e.ready, "readiness")
			e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "a refusal")
		})
	}
}

// The API server must not refuse Configurations while the Service does not route to a replica.
func TestUnreachableWebhookIsIgnored(t *testing.T) {
	e := newWebhookEnv(t)
	e.serve(func(c *brokercontroller.WebhookConfig) { c.URL = "https://localhost:1" + admission.Path })
	e.eventually(e.ready, "readiness")
	require.Equal(t, admissionregistrationv1.Ignore, e.policy())
	require.NoError(t, e.dryRun("misspelt", misspelt))
}

func TestStandbyWithAnotherSecretIsReady(t *testing.T) {
	e := newWebhookEnv(t)
	elect := func(c *brokercontroller.Config) { c.LeaderElect = true }
	stop := e.start(e.webhookConfig(), elect)
	e.eventually(func() bool { return e.policy() == admissionregistrationv1.Fail }, "the registration")
	first := e.secret().Data[webhook.CACertKey]

	const name = "other"
	secrets := e.clientset.CoreV1().Secrets(e.namespace)
	_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	e.start(e.webhookConfig(func(c *brokercontroller.WebhookConfig) { c.Secret = name }), elect)
	e.eventually(e.ready, "readiness")
	secret, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, string(e.caBundle()), string(first))
	require.Contains(t, string(e.caBundle()), string(secret.Data[webhook.CACertKey]))

	require.NoError(t, stop())
	e.eventually(func() bool { return bytes.Equal(secret.Data[webhook.CACertKey], e.caBundle()) }, "the CA of the new leader only")
	e.eventually(func() bool { return e.dryRun("good", podsOnly) == nil && e.dryRun("misspelt", misspelt) != nil }, "a response")
}

func TestExternalCertificateIsUsed(t *testing.T) {
	e := newWebhookEnv(t)
	first := e.issue(0)
	e.serve(func(c *brokercontroller.WebhookConfig) { c.MakeCertificate = false })
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")
	require.Equal(t, first[webhook.CACertKey], e.caBundle())
	second := e.issue(0)
	e.eventually(func() bool { return bytes.Equal(second[webhook.CACertKey], e.caBundle()) }, "the new CA bundle")
	e.eventually(func() bool { return e.dryRun("good", podsOnly) == nil }, "a response with the new certificate")
	require.Equal(t, second, e.secret().Data, "the Secret must not change")
}

// No review fails while the CA is replaced, also if the new CA bundle does not have the old CA.
func TestReplacedCAFailsNoReview(t *testing.T) {
	for name, c := range map[string]struct {
		made    bool
		replace func(webhookEnv)
	}{
		"made here": {true, func(e webhookEnv) {
			e.editSecret(func(secret *corev1.Secret) { delete(secret.Data, webhook.CAPrivateKeyKey) })
		}},
		"made elsewhere": {false, func(e webhookEnv) { e.issue(0) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := newWebhookEnv(t)
			if !c.made {
				e.issue(0)
			}
			e.serve(func(config *brokercontroller.WebhookConfig) { config.MakeCertificate = c.made })
			e.eventually(func() bool { return e.policy() == admissionregistrationv1.Fail }, "the registration")
			ctx, stop := context.WithCancel(t.Context())
			var reviews sync.WaitGroup
			defer reviews.Wait()
			defer stop()
			for range 2 {
				reviews.Go(func() {
					for ctx.Err() == nil {
						assert.NoError(t, e.dryRun("good", podsOnly))
					}
				})
			}
			for range 3 {
				before := e.caBundle()
				c.replace(e)
				e.eventually(func() bool {
					secret := e.secret().Data
					return len(secret[webhook.CAPrivateKeyKey]) > 0 == c.made && !bytes.Equal(before, secret[webhook.CACertKey]) &&
						bytes.Equal(secret[webhook.CACertKey], e.caBundle())
				}, "the new CA without others")
			}
		})
	}
}

func TestOldCertificateIsRenewed(t *testing.T) {
	e := newWebhookEnv(t)
	old := e.issue(80 * 24 * time.Hour)
	e.serve()
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil && e.dryRun("good", podsOnly) == nil }, "the registration of the webhook")
	require.NotEqual(t, old[corev1.TLSCertKey], e.secret().Data[corev1.TLSCertKey])
}

func (e webhookEnv) patchConfiguration(patch string, subresources ...string) {
	e.Helper()
	_, err := e.Configurations.In(e.namespace).Patch(e.Context(), "existing", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	require.NoError(e, err)
}

func TestClusterSchema(t *testing.T) {
	e := newTestEnv(t)
	schema := admission.NewClusterSchema(e.REST)
	for name, c := range map[string]struct {
		parent any
		exists bool
	}{
		"imagePullPolicy": {corev1.Container{}, true},
		"imagePullPolcy":  {corev1.Container{}, false},
		"emptyDir":        {corev1.Volume{}, true},
		"finalizers":      {metav1.ObjectMeta{}, true},
		"ports":           {corev1.ServiceSpec{}, true},
		"capacity":        {akriv0.ConfigurationSpec{}, false},
	} {
		exists, err := schema.HasField(t.Context(), reflect.TypeOf(c.parent), name)
		require.NoError(t, err, name)
		require.Equal(t, c.exists, exists, name)
	}
}
