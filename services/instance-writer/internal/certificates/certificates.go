// Package certificates makes and renews the CA and the server certificates of instance-writer. The
// CA is in a Secret, and the certificates that clients trust are in a ConfigMap. Any replica renews
// them. Each replica signs its own server certificate, which stays in its memory.
package certificates

import (
	"context"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	"akri.sh/libs/pki"
)

// Keys of the Secret. The ConfigMap has BundleKey only.
const (
	// BundleKey has the certificates of all CAs that clients must trust.
	BundleKey = "ca.crt"
	// The CA that signs now.
	signerCertKey, signerKeyKey = "signer.crt", "signer.key"
	// The CA that signs next. Clients already trust it.
	nextCertKey, nextKeyKey = "next.crt", "next.key"
)

// rotateAnnotation on the Secret makes a replica publish the next CA at once. The replica removes
// it.
const rotateAnnotation = "akri.sh/rotate"

const (
	callTimeout  = 5 * time.Second
	initialDelay = 200 * time.Millisecond
	maxDelay     = 30 * time.Second
)

// Manager maintains the certificates of one replica.
type Manager struct {
	issuer    pki.Issuer
	log       *zap.Logger
	secret    *kube.Named[*corev1.Secret]
	configMap *kube.Named[*corev1.ConfigMap]
	changed   broadcast.Signal
	// server is the current certificate, and signer the CA that signed it.
	server pki.Current
	signer atomic.Pointer[x509.Certificate]
}

// New returns a Manager for a Secret and a ConfigMap, which exist. It starts nothing.
func New(config *rest.Config, secret, configMap cache.ObjectName, issuer pki.Issuer, log *zap.Logger) (*Manager, error) {
	secrets, err := kube.Secrets(config)
	if err != nil {
		return nil, err
	}
	configMaps, err := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](
		config, corev1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		return nil, err
	}
	changed := broadcast.NewSignal()
	return &Manager{
		issuer: issuer, log: log, changed: changed,
		secret:    kube.NewNamed(secrets, "Secret", secret, changed),
		configMap: kube.NewNamed(configMaps, "ConfigMap", configMap, changed),
	}, nil
}

// Certificate is the Source of the server certificate.
func (m *Manager) Certificate() pki.Source { return m.server.GetCertificate }

// Signer returns the CA that signed the current certificate, or nil before the first one.
func (m *Manager) Signer() *x509.Certificate { return m.signer.Load() }

// Existence returns metrics of the Secret and the ConfigMap.
func (m *Manager) Existence() []prometheus.Collector {
	return []prometheus.Collector{m.secret.Existence(), m.configMap.Existence()}
}

// Run renews the certificates until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	objects := kube.Informers{m.secret, m.configMap}
	var watching sync.WaitGroup
	watching.Go(func() { objects.Run(ctx) })
	kube.Loop{
		Objects: objects, Changed: m.changed, Reconcile: m.reconcile, Timeout: callTimeout,
		FirstRetry: initialDelay, MaxRetry: maxDelay,
		Log: m.log.Warn, Failed: "renewing the certificates failed",
	}.Run(ctx)
	watching.Wait()
}

// reconcile makes one change at a time. A change of the Secret or the ConfigMap makes the loop
// continue at once.
func (m *Manager) reconcile(ctx context.Context) (time.Duration, error) {
	secret, err := m.secret.Current()
	if err != nil {
		return 0, err
	}
	configMap, err := m.configMap.Current()
	if err != nil {
		return 0, err
	}

	now, stored := time.Now(), read(secret)
	_, rotate := secret.Annotations[rotateAnnotation]
	authority, next, err := m.issuer.RenewCA(now, stored, rotate)
	if err != nil {
		return 0, err
	}
	if rotate || !authority.Equal(stored) {
		return next.Sub(now), m.store(ctx, secret, authority)
	}
	if bundle := string(authority.Bundle); configMap.Data[BundleKey] != bundle {
		update := configMap.DeepCopy()
		update.Data = map[string]string{BundleKey: bundle}
		return next.Sub(now), m.configMap.Update(ctx, update)
	}

	// The CA is published now.
	server, err := m.issuer.RenewServer(now, m.server.Load(), authority.Signer)
	if err != nil {
		return 0, err
	}
	m.server.Store(server)
	m.signer.Store(authority.Signer.Leaf)
	return pki.Wait(now, next, m.issuer.ServerRenewal(server, authority.Signer)), nil
}

// read returns the Authority in the Secret. A damaged CA is a missing one.
func read(secret *corev1.Secret) pki.Authority {
	signer, _ := pki.Load(secret.Data[signerCertKey], secret.Data[signerKeyKey])
	next, _ := pki.Load(secret.Data[nextCertKey], secret.Data[nextKeyKey])
	return pki.Authority{Signer: signer, Next: next, Bundle: secret.Data[BundleKey]}
}

func (m *Manager) store(ctx context.Context, secret *corev1.Secret, authority pki.Authority) error {
	update := secret.DeepCopy()
	delete(update.Annotations, rotateAnnotation)
	update.Data = map[string][]byte{
		BundleKey:     authority.Bundle,
		signerCertKey: authority.Signer.CertificatePEM, signerKeyKey: authority.Signer.KeyPEM,
	}
	if next := authority.Next; next != nil {
		update.Data[nextCertKey], update.Data[nextKeyKey] = next.CertificatePEM, next.KeyPEM
	}
	if err := m.secret.Update(ctx, update); err != nil {
		return err
	}
	m.log.Info("CA of instance-writer renewed", zap.String("secret", secret.Name))
	return nil
}
