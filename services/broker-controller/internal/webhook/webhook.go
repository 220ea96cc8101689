// Package webhook serves the review of Configurations over TLS and makes the API server ask it. Its
// certificate stands in a Secret, so that all replicas serve with the same; the leader renews it
// and says in the ValidatingWebhookConfiguration how to check it.
package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
	"akri.sh/services/broker-controller/internal/certificates"
)

const (
	readTimeout = 10 * time.Second
	stopTimeout = 3 * time.Second
	// linger is how long requests are still taken after the end has come: as long as it may take
	// until the Service leads to other replicas alone.
	linger = 2 * time.Second
)

var errNoCertificate = errors.New("no certificate yet")

// Settings of a Webhook.
type Settings struct {
	// Address to listen on.
	Address string
	// Namespace of the Service and the Secret.
	Namespace string
	// Name of the Service and of the ValidatingWebhookConfiguration.
	Name string
	// Secret with the certificate.
	Secret string
	// MakeCertificate: the Secret is filled and renewed here, else by somebody else.
	MakeCertificate bool
	// URL, if set, is where the API server finds the webhook in place of the Service.
	URL     string
	Handler http.Handler
	Log     *zap.Logger
}

// Webhook is one replica.
type Webhook struct {
	Settings
	secrets *kube.Client[*corev1.Secret, *corev1.SecretList]
	hooks   *kube.Client[*admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfigurationList]
	secret  *kube.Informer[*corev1.Secret]
	hook    *kube.Informer[*admissionregistrationv1.ValidatingWebhookConfiguration]
	pair    atomic.Pointer[tls.Certificate]
	changed chan struct{}
}

// New starts nothing.
func New(access *rest.Config, settings Settings) (w *Webhook, err error) {
	w = &Webhook{Settings: settings, changed: make(chan struct{}, 1)}
	if w.secrets, err = kube.NewClient(access, corev1.SchemeGroupVersion.WithResource("secrets"), corev1.AddToScheme,
		func() *corev1.Secret { return &corev1.Secret{} }, func() *corev1.SecretList { return &corev1.SecretList{} }); err != nil {
		return nil, err
	}
	if w.hooks, err = kube.NewClient(access, admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"),
		admissionregistrationv1.AddToScheme,
		func() *admissionregistrationv1.ValidatingWebhookConfiguration {
			return &admissionregistrationv1.ValidatingWebhookConfiguration{}
		},
		func() *admissionregistrationv1.ValidatingWebhookConfigurationList {
			return &admissionregistrationv1.ValidatingWebhookConfigurationList{}
		}); err != nil {
		return nil, err
	}
	if w.secret, err = kube.NewNamedInformer(w.secrets, settings.Namespace, settings.Secret); err != nil {
		return nil, err
	}
	if w.hook, err = kube.NewNamedInformer(w.hooks, "", settings.Name); err != nil {
		return nil, err
	}
	if err := w.secret.OnChange(func(string) { w.take(); w.wake() }); err != nil {
		return nil, err
	}
	return w, w.hook.OnChange(func(string) { w.wake() })
}

func (w *Webhook) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// take serves with the certificate of the Secret from now on. One that cannot be read changes
// nothing.
func (w *Webhook) take() {
	secret, there := w.secret.Get(w.Namespace + "/" + w.Secret)
	if !there || len(secret.Data[certificates.Certificate]) == 0 {
		return
	}
	pair, err := certificates.Pair(secret.Data)
	if err != nil {
		w.Log.Error("the webhook's certificate cannot be used", zap.String("secret", w.Secret), zap.Error(err))
		return
	}
	w.pair.Store(pair)
}

// Ready says whether there is a certificate to serve with.
func (w *Webhook) Ready(context.Context) error {
	if w.pair.Load() == nil {
		return errNoCertificate
	}
	return nil
}

// Run serves until ctx ends.
func (w *Webhook) Run(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", w.Address)
	if err != nil {
		return fmt.Errorf("listen for reviews: %w", err)
	}
	var group errgroup.Group
	group.Go(func() error { w.secret.RunWithContext(ctx); return nil })
	group.Go(func() error { w.hook.RunWithContext(ctx); return nil })
	group.Go(func() error { return w.serve(ctx, listener) })
	return group.Wait()
}

func (w *Webhook) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: w.Handler, ReadTimeout: readTimeout, ErrorLog: zap.NewStdLog(w.Log),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair := w.pair.Load()
			if pair == nil {
				return nil, errNoCertificate
			}
			return pair, nil
		}},
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-served:
		return fmt.Errorf("serve reviews: %w", err)
	case <-ctx.Done():
	}
	<-time.After(linger)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve reviews: %w", err)
	}
	return nil
}
