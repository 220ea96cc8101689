package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/services/broker-controller/internal/admission"
	"akri.sh/services/broker-controller/internal/certificates"
)

const (
	hookName       = "akri-webhook-configuration.akri.svc" // Akri's
	servicePort    = 443
	reviewSeconds  = 10
	callTimeout    = 10 * time.Second
	retryFirst     = 500 * time.Millisecond
	retryMax       = 3 * time.Second // the first time it waits for its own pod to be ready
	retryFactor    = 2
	retryJitter    = 0.2
	retrySteps     = 10
	longestTimer   = 24 * time.Hour // a timer for longer than the clock is steady would be late
	specHasChanged = "request.operation == 'CREATE' || (!has(object.metadata.deletionTimestamp) && " +
		"object.metadata.generation != oldObject.metadata.generation)"
)

var errNothingThere = errors.New("does not exist; the chart makes it")

// Maintain keeps the certificate fresh and the API server asking, until ctx ends. One replica at a
// time should.
func (w *Webhook) Maintain(ctx context.Context) {
	if kube.WaitForSync(ctx, w.secret, w.hook) != nil {
		return // told to stop
	}
	fresh := wait.Backoff{Duration: retryFirst, Factor: retryFactor, Jitter: retryJitter, Steps: retrySteps, Cap: retryMax}
	backoff := fresh
	for {
		again, err := w.maintain(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			again = backoff.Step()
			w.Log.Warn("the webhook is not in force", zap.Error(err), zap.Duration("retry_in", again))
		} else {
			backoff = fresh
		}
		timer := time.NewTimer(min(again, longestTimer))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.changed:
		}
		timer.Stop()
	}
}

// maintain says after how long to look again although nothing changed.
func (w *Webhook) maintain(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secret, there := w.secret.Get(w.Namespace + "/" + w.Secret)
	if !there {
		return 0, fmt.Errorf("secret %q: %w", w.Secret, errNothingThere)
	}
	again := longestTimer
	if w.MakeCertificate {
		renewed, until, err := w.renew(ctx, secret)
		if err != nil || renewed {
			return until, err // the Secret comes back as a change
		}
		again = until
	}
	trust := certificates.Trust(secret.Data)
	if len(trust) == 0 {
		return 0, fmt.Errorf("secret %q: %w", w.Secret, errNoCertificate)
	}
	return again, w.publish(ctx, trust)
}

func (w *Webhook) renew(ctx context.Context, secret *corev1.Secret) (bool, time.Duration, error) {
	now := time.Now()
	data, changed, next, err := certificates.Renewed(now, secret.Data, w.names())
	if err != nil || !changed {
		return false, next.Sub(now), err
	}
	update := secret.DeepCopy()
	update.Data = data
	_, err = w.secrets.In(w.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) {
		return false, 0, fmt.Errorf("write Secret: %w", err)
	}
	w.Log.Info("made a certificate for the webhook", zap.Time("renewed_at", next))
	return true, next.Sub(now), nil
}

func (w *Webhook) names() []string {
	name := w.Name + "." + w.Namespace
	return []string{name + ".svc", name + ".svc.cluster.local", "localhost"}
}

// publish makes the API server ask this webhook. It does so for the first time only once the
// webhook can be reached, so that nobody is refused for its being late.
func (w *Webhook) publish(ctx context.Context, trust []byte) error {
	hook, there := w.hook.Get(w.Name)
	if !there {
		return fmt.Errorf("ValidatingWebhookConfiguration %q %w", w.Name, errNothingThere)
	}
	wanted := []admissionregistrationv1.ValidatingWebhook{w.validatingWebhook(trust)}
	if equality.Semantic.DeepEqual(hook.Webhooks, wanted) {
		return nil
	}
	if len(hook.Webhooks) == 0 {
		if err := w.reach(ctx, trust); err != nil {
			return err
		}
	}
	update := hook.DeepCopy()
	update.Webhooks = wanted
	_, err := w.hooks.In("").Update(ctx, update, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("write ValidatingWebhookConfiguration: %w", err)
	}
	w.Log.Info("the webhook is in force")
	return nil
}

// reach calls the webhook the way that the API server will.
func (w *Webhook) reach(ctx context.Context, trust []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
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

// validatingWebhook sets every field that the API server would, so that what is there can be
// compared. Deletions are no operation of it, the status is another resource, and of updates only
// those of the spec match.
func (w *Webhook) validatingWebhook(trust []byte) admissionregistrationv1.ValidatingWebhook {
	client := admissionregistrationv1.WebhookClientConfig{CABundle: trust}
	if w.URL != "" {
		client.URL = &w.URL
	} else {
		client.Service = &admissionregistrationv1.ServiceReference{
			Namespace: w.Namespace, Name: w.Name, Path: new(admission.Path), Port: new(int32(servicePort)),
		}
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name: hookName, ClientConfig: client,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{akriv0.Group}, APIVersions: []string{akriv0.GroupVersion.Version},
				Resources: []string{akriv0.ConfigurationResource.Resource}, Scope: new(admissionregistrationv1.AllScopes),
			},
		}},
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "spec-changes", Expression: specHasChanged}},
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       &metav1.LabelSelector{},
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(reviewSeconds)),
		AdmissionReviewVersions: []string{"v1"},
	}
}
