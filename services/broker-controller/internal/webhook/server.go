// Package webhook serves the validating webhook over TLS and registers it with the API server. The
// certificate is in a Secret, so that all replicas serve with the same one. Any replica renews it
// and publishes its CA in the ValidatingWebhookConfiguration.
package webhook

import (
	"cmp"
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

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	"akri.sh/libs/limits"
	"akri.sh/libs/pki"
	"akri.sh/libs/service"
)

const (
	readTimeout = 5 * time.Second
	// writeTimeout is more than readTimeout and the time of a review.
	writeTimeout = 15 * time.Second
	// maxConnections is the number of connections of one address. An API server sends as many
	// reviews at once.
	maxConnections = 32
	// maxAllConnections bounds the memory of connections, each of which takes up to 150 KiB. It is
	// more than eight API servers have.
	maxAllConnections = 256
	maxHeaderBytes    = 16 << 10
	shutdownTimeout   = 3 * time.Second
	// shutdownDelay is how long the server accepts requests after ctx has ended, until the Service
	// routes to other replicas only.
	shutdownDelay = 2 * time.Second
	// defaultSettleTime is more than the delay with which API servers get a changed registration.
	defaultSettleTime = 5 * time.Second
)

var errNotRegistered = errors.New("the webhook is not registered yet")

// Roles of a replica. A new leader removes the CA certificates of other replicas once.
const (
	standby int32 = iota
	takingOver
	leader
)

// Deny is the value of Config.InvalidDetails with which the webhook refuses them.
const Deny = "Deny"

// Config of a Webhook, which has the flags of the service.
type Config struct {
	Address         string `help:"Address of the validating webhook for Configurations. Empty disables it." placeholder:"HOST:PORT"`
	Name            string `help:"Name of the webhook's Service and ValidatingWebhookConfiguration." default:"akri-webhook-configuration"`
	Secret          string `help:"Name of the Secret with the webhook's certificate." default:"akri-webhook-configuration"`
	MakeCertificate bool   `help:"Create and renew the certificate in the Secret. Disable it for certificates of cert-manager." default:"true"`
	ClientCA        string `name:"client-ca" help:"File with the CA certificates of the client certificates of API servers. Empty: any client may send reviews." placeholder:"FILE"`
	InvalidDetails  string `help:"What to do with discoveryDetails that the handlers of this project refuse: ${enum}." enum:"Warn,Deny" default:"Warn"`
	// URL and SettleTime replace the Service and defaultSettleTime in tests. SettleTime is the time
	// in which all API servers use a changed registration.
	URL        string        `kong:"-"`
	SettleTime time.Duration `kong:"-"`
}

// Options of a Webhook.
type Options struct {
	Config
	// Namespace of the Service and the Secret.
	Namespace string
	Handler   http.Handler
	Log       *zap.Logger
	// RefusedConnections counts connections beyond the limits.
	RefusedConnections prometheus.Counter
}

type registration = admissionregistrationv1.ValidatingWebhookConfiguration

// Webhook is one replica of the webhook.
type Webhook struct {
	Options
	certificate  pki.Current
	secret       *kube.Named[*corev1.Secret]
	registration *kube.Named[*registration]
	changed      broadcast.Signal
	role         atomic.Int32
	// trusted is the CA bundle that API servers are sure to use. This replica saw it in the
	// registration at trustedSince.
	trusted      []byte
	trustedSince time.Time
}

// New returns a Webhook. It starts nothing.
func New(config *rest.Config, options Options) (*Webhook, error) {
	secrets, err := kube.Secrets(config)
	if err != nil {
		return nil, err
	}
	resource := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	registrations, err := kube.NewClient[registration, admissionregistrationv1.ValidatingWebhookConfigurationList](
		config, resource)
	if err != nil {
		return nil, err
	}
	options.SettleTime = cmp.Or(options.SettleTime, defaultSettleTime)
	changed := broadcast.NewSignal()
	return &Webhook{
		Options: options, changed: changed,
		secret:       kube.NewNamed(secrets, "Secret", cache.NewObjectName(options.Namespace, options.Secret), changed),
		registration: kube.NewNamed(registrations, "ValidatingWebhookConfiguration", cache.NewObjectName("", options.Name), changed),
	}, nil
}

// Certificate is the Source of the server certificate.
func (w *Webhook) Certificate() pki.Source { return w.certificate.GetCertificate }

// Existence returns metrics of the Secret and the registration.
func (w *Webhook) Existence() []prometheus.Collector {
	return []prometheus.Collector{w.secret.Existence(), w.registration.Existence()}
}

// Ready is a readiness check. It returns an error until the API server has a registration whose CA
// verifies the certificate of this replica.
func (w *Webhook) Ready(context.Context) error {
	registration, err := w.registration.Current()
	if err != nil {
		return err
	}
	if len(registration.Webhooks) == 0 {
		return errNotRegistered
	}
	return w.verify(w.certificate.Load(), bundleOf(registration))
}

// verify checks a certificate as the API server does.
func (w *Webhook) verify(certificate *pki.KeyPair, bundle []byte) error {
	if certificate == nil {
		return pki.ErrNoCertificate
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
	group.Go(func() error { w.objects().Run(ctx); return nil })
	group.Go(func() error { w.maintain(ctx); return nil })
	group.Go(func() error { return w.serve(ctx, listener) })
	return group.Wait()
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
		MinVersion: tls.VersionTLS12, GetCertificate: w.certificate.GetCertificate, NextProtos: []string{"http/1.1"},
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
		Handler: w.verifyClient(w.Handler), ErrorLog: zap.NewStdLog(w.Log),
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeaderBytes,
		Protocols: new(http.Protocols), TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: w.certificate.GetCertificate, GetConfigForClient: w.configForClient,
		},
	}
	// Without this a request on an idle connection could fail when the server closes it. API
	// servers do not repeat requests to webhooks.
	server.SetKeepAlivesEnabled(false)
	// With HTTP/1 a connection has one request, so that the limit of connections is one of
	// requests, and the timeouts apply to each.
	server.Protocols.SetHTTP1(true)
	limited := limits.Listen(listener, limits.Connections{PerSource: maxConnections, Total: maxAllConnections}, w.RefusedConnections)
	serving, cancel := service.Delay(ctx, shutdownDelay)
	defer cancel()
	if err := service.ServeHTTP(serving, server, limited, shutdownTimeout); err != nil {
		return fmt.Errorf("serve the webhook: %w", err)
	}
	return nil
}
