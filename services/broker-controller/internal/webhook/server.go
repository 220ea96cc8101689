// Package webhook serves the validating webhook over TLS and registers it with the API server. The
// certificate is in a Secret, so that all replicas serve with the same one. Any replica renews it
// and publishes its CA in the ValidatingWebhookConfiguration.
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	"akri.sh/libs/pki"
)

const (
	readTimeout     = 5 * time.Second
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 3 * time.Second
	// shutdownDelay is how long the server accepts requests after ctx has ended, until the Service
	// routes to other replicas only.
	shutdownDelay = 2 * time.Second
)

var (
	errNoCertificate = errors.New("no certificate yet")
	errNotRegistered = errors.New("the webhook is not registered yet")
)

// Roles of a replica. A new leader removes the CA certificates of other replicas once.
const (
	standby int32 = iota
	takingOver
	leader
)

// Options of a Webhook.
type Options struct {
	// Address to listen on.
	Address string
	// Namespace of the Service and the Secret.
	Namespace string
	// Name of the Service and of the ValidatingWebhookConfiguration.
	Name string
	// Secret is the name of the Secret with the certificate.
	Secret string
	// MakeCertificate makes the replicas create and renew the certificate.
	MakeCertificate bool
	// ClientCA is the file with the CA certificates of API servers. Empty: any client is served.
	ClientCA string
	// URL replaces the Service as the address that the API server calls.
	URL string
	// SettleTime is the time in which all API servers use a changed registration.
	SettleTime time.Duration
	Handler    http.Handler
	Log        *zap.Logger
}

type (
	registration     = admissionregistrationv1.ValidatingWebhookConfiguration
	registrationList = admissionregistrationv1.ValidatingWebhookConfigurationList
)

// Webhook is one replica of the webhook.
type Webhook struct {
	Options
	secrets       *kube.Client[*corev1.Secret, *corev1.SecretList]
	registrations *kube.Client[*registration, *registrationList]
	secret        *kube.Informer[*corev1.Secret]
	registration  *kube.Informer[*registration]
	certificate   atomic.Pointer[tls.Certificate]
	trusted       trust
	changed       broadcast.Signal
	role          atomic.Int32
}

// New returns a Webhook. It starts nothing.
func New(config *rest.Config, options Options) (w *Webhook, err error) {
	w = &Webhook{Options: options, changed: broadcast.NewSignal()}
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	if w.secrets, err = kube.NewClient[corev1.Secret, corev1.SecretList](config, secrets, corev1.AddToScheme); err != nil {
		return nil, err
	}
	resource := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	w.registrations, err = kube.NewClient[registration, registrationList](config, resource, admissionregistrationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	w.secret = kube.NewNamedInformer(w.secrets, options.Namespace, options.Secret)
	w.registration = kube.NewNamedInformer(w.registrations, "", options.Name)
	w.secret.OnChange(func(string) { w.changed.Notify() })
	w.registration.OnChange(func(string) { w.changed.Notify() })
	return w, nil
}

// Ready is a readiness check. It returns an error until the API server has a registration whose CA
// verifies the certificate of this replica.
func (w *Webhook) Ready(context.Context) error {
	registration, ok := w.registration.Get(w.Name)
	if !ok {
		return fmt.Errorf("ValidatingWebhookConfiguration %q %w", w.Name, errNotFound)
	}
	if len(registration.Webhooks) == 0 {
		return errNotRegistered
	}
	return w.verify(w.certificate.Load(), bundleOf(registration))
}

// Served returns the server certificate, or nil before the first one.
func (w *Webhook) Served() *x509.Certificate {
	if certificate := w.certificate.Load(); certificate != nil {
		return certificate.Leaf
	}
	return nil
}

// verify checks a certificate as the API server does.
func (w *Webhook) verify(certificate *tls.Certificate, bundle []byte) error {
	if certificate == nil {
		return errNoCertificate
	}
	if err := pki.Verify(certificate, bundle, w.serverName(), time.Now()); err != nil {
		return fmt.Errorf("verify the certificate with the registered CA: %w", err)
	}
	return nil
}

// serverName is the name that the certificate must have.
func (w *Webhook) serverName() string {
	if address, err := url.Parse(w.URL); err == nil && address.Host != "" {
		return address.Hostname()
	}
	return w.Name + "." + w.Namespace + ".svc"
}

// Run serves until ctx ends.
func (w *Webhook) Run(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", w.Address)
	if err != nil {
		return fmt.Errorf("listen for the webhook: %w", err)
	}
	var group errgroup.Group
	group.Go(func() error { w.secret.RunWithContext(ctx); return nil })
	group.Go(func() error { w.registration.RunWithContext(ctx); return nil })
	group.Go(func() error { w.maintain(ctx); return nil })
	group.Go(func() error { return w.serve(ctx, listener) })
	return group.Wait()
}

func (w *Webhook) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := w.certificate.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errNoCertificate
}

// configForClient reads the CA certificates of clients for each connection, because they can
// change. A nil configuration is the one of the server.
func (w *Webhook) configForClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	if w.ClientCA == "" {
		return nil, nil //nolint:nilnil // see above
	}
	bundle, err := os.ReadFile(w.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("read CA certificates of clients: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s: no CA certificate", w.ClientCA)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: w.getCertificate, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients,
	}, nil
}

// verifyClient refuses reviews of clients without a certificate. Other requests, such as the probe
// of the leader, do nothing.
func (w *Webhook) verifyClient(next http.Handler) http.Handler {
	if w.ClientCA == "" {
		return next
	}
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPost && len(request.TLS.VerifiedChains) == 0 {
			w.Log.Info("request without a client certificate refused", zap.String("client", request.RemoteAddr))
			http.Error(response, "a client certificate is required", http.StatusForbidden)
			return
		}
		next.ServeHTTP(response, request)
	})
}

func (w *Webhook) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: w.verifyClient(w.Handler), ReadTimeout: readTimeout, ErrorLog: zap.NewStdLog(w.Log),
		MaxHeaderBytes: maxHeaderBytes, TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: w.getCertificate, GetConfigForClient: w.configForClient,
		},
	}
	// Without this a request on an idle connection could fail when the server closes it. API
	// servers do not repeat requests to webhooks.
	server.SetKeepAlivesEnabled(false)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the webhook: %w", err)
	case <-ctx.Done():
	}
	<-time.After(shutdownDelay)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the webhook: %w", err)
	}
	return nil
}
