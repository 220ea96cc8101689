package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/pki"
	"akri.sh/services/broker-controller/internal/admission"
)

const (
	webhookName    = "akri-webhook-configuration.akri.svc" // as in upstream Akri
	servicePort    = 443
	reviewSeconds  = 10
	requestTimeout = 10 * time.Second
	initialBackoff = 500 * time.Millisecond
	maxBackoff     = 3 * time.Second // at first, the webhook's own Pod is not ready yet
	// specChanged is true for objects that are being deleted, too: their specs are read until they
	// are gone.
	specChanged = "request.operation == 'CREATE' || object.metadata.generation != oldObject.metadata.generation"
)

// Lead makes this replica the one that sets the whole registration until ctx ends.
func (w *Webhook) Lead(ctx context.Context) {
	w.role.Store(takingOver)
	w.changed.Notify()
	<-ctx.Done()
	w.role.Store(standby)
}

// maintain renews the certificate and keeps the webhook registered until ctx ends. Every replica
// calls it: a replica that is not ready must not wait for the leader, which can run
// with another Secret or without the webhook.
func (w *Webhook) maintain(ctx context.Context) {
	kube.Loop{
		Objects: w.objects(), Changed: w.changed, Reconcile: w.reconcile, Timeout: requestTimeout,
		FirstRetry: initialBackoff, MaxRetry: maxBackoff,
		Log: w.Log.Warn, Failed: "registering the webhook failed",
	}.Run(ctx)
}

func (w *Webhook) objects() kube.Informers { return kube.Informers{w.secret, w.registration} }

// reconcile returns when to reconcile again even if no object changes.
func (w *Webhook) reconcile(ctx context.Context) (time.Duration, error) {
	secret, err := w.secret.Current()
	if err != nil {
		return 0, err
	}
	after := kube.MaxWait
	if w.MakeCertificate {
		renewed, next, err := w.renew(ctx, secret)
		if err != nil || renewed {
			return next, err // the update of the Secret triggers the next reconciliation
		}
		after = next
	}
	bundle := CABundle(secret.Data)
	if len(bundle) == 0 {
		return 0, fmt.Errorf("secret %q: %w", w.Secret, pki.ErrNoCertificate)
	}
	registration, err := w.registration.Current()
	if err != nil {
		return 0, err
	}
	changes, settled, err := w.changeCertificate(secret, bundleOf(registration))
	if err != nil {
		return 0, err
	}
	return min(after, changes), w.register(ctx, registration, bundle, settled)
}

func (w *Webhook) renew(ctx context.Context, secret *corev1.Secret) (bool, time.Duration, error) {
	now := time.Now()
	data, changed, next, err := RenewCertificate(now, secret.Data, w.dnsNames())
	if err != nil || !changed {
		return false, pki.Wait(now, next), err
	}
	update := secret.DeepCopy()
	update.Data = data
	if err := w.secret.Update(ctx, update); err != nil {
		return false, 0, err
	}
	w.Log.Info("certificate of the webhook created", zap.Time("renewed_at", next))
	return true, pki.Wait(now, next), nil
}

func (w *Webhook) dnsNames() []string {
	name := w.Name + "." + w.Namespace
	return []string{name + ".svc", name + ".svc.cluster.local", "localhost"}
}

// register updates the ValidatingWebhookConfiguration. A standby replica only adds its CA if it is
// missing. A Service routes to ready replicas only and a replica is ready only when the webhook is
// registered, so the API server ignores an unreachable webhook until the leader has reached it.
func (w *Webhook) register(ctx context.Context, registration *registration, own []byte, settled bool) error {
	role, current := w.role.Load(), bundleOf(registration)
	if role == standby && (bytes.Contains(current, own) || settled && w.verify(w.certificate.Load(), current) == nil) {
		return nil
	}
	policy, probeErr := policyOf(registration), error(nil)
	if policy == admissionregistrationv1.Ignore && role != standby && len(current) > 0 {
		if probeErr = w.probe(ctx, own); probeErr == nil {
			policy = admissionregistrationv1.Fail
		}
	}
	desired := []admissionregistrationv1.ValidatingWebhook{w.validatingWebhook(newBundle(role, settled, own, current), policy)}
	if !equality.Semantic.DeepEqual(registration.Webhooks, desired) {
		update := registration.DeepCopy()
		update.Webhooks = desired
		if err := w.registration.Update(ctx, update); err != nil {
			return err
		}
		w.Log.Info("webhook registered", zap.String("failure_policy", string(policy)))
	}
	if settled {
		w.role.CompareAndSwap(takingOver, leader)
	}
	return probeErr
}

func bundleOf(registration *registration) []byte {
	if len(registration.Webhooks) == 0 {
		return nil
	}
	return registration.Webhooks[0].ClientConfig.CABundle
}

func policyOf(registration *registration) admissionregistrationv1.FailurePolicyType {
	if len(registration.Webhooks) == 0 || registration.Webhooks[0].FailurePolicy == nil {
		return admissionregistrationv1.Ignore
	}
	return *registration.Webhooks[0].FailurePolicy
}

// newBundle returns the CA certificates to register. Those of the certificates that replicas still
// serve stay until all have changed. A leader keeps those that replicas with another Secret have
// added since it took over, so that two replicas do not undo each other's changes.
func newBundle(role int32, settled bool, own, current []byte) []byte {
	switch {
	case len(current) == 0 || settled && role == takingOver:
		return own
	case bytes.Contains(current, own):
		return current
	case role == standby || !settled:
		return slices.Concat(own, []byte("\n"), current)
	}
	return own
}

// probe calls the webhook in the same way as the API server.
func (w *Webhook) probe(ctx context.Context, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	defer transport.CloseIdleConnections()
	url := w.URL
	if url == "" {
		url = fmt.Sprintf("https://%s.%s.svc:%d%s", w.Name, w.Namespace, servicePort, admission.Path)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("call webhook: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("call webhook: %w", err)
	}
	return response.Body.Close()
}

// validatingWebhook sets also the fields that the API server defaults, so that the result can be
// compared with the registered webhook. It matches creations and changes of the spec, and neither
// deletions nor the status.
func (w *Webhook) validatingWebhook(
	bundle []byte, policy admissionregistrationv1.FailurePolicyType,
) admissionregistrationv1.ValidatingWebhook {
	client := admissionregistrationv1.WebhookClientConfig{CABundle: bundle}
	if w.URL != "" {
		client.URL = &w.URL
	} else {
		client.Service = &admissionregistrationv1.ServiceReference{
			Namespace: w.Namespace, Name: w.Name, Path: new(admission.Path), Port: new(int32(servicePort)),
		}
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name: webhookName, ClientConfig: client,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{akriv0.Group}, APIVersions: []string{akriv0.GroupVersion.Version},
				Resources: []string{akriv0.ConfigurationResource.Resource}, Scope: new(admissionregistrationv1.AllScopes),
			},
		}},
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "spec-changes", Expression: specChanged}},
		FailurePolicy:           &policy,
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       &metav1.LabelSelector{},
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(reviewSeconds)),
		AdmissionReviewVersions: []string{"v1"},
	}
}
