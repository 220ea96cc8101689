// Package certificates makes and renews the CA and the server certificates of instance-writer. The
// CA is in a Secret, and the certificates that clients trust are in a ConfigMap. Any replica renews
// them. Each replica signs its own server certificate, which stays in its memory.
package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	"akri.sh/libs/pki"
	"akri.sh/libs/rpc"
)

// rotateAnnotation on the Secret makes a replica publish the next CA at once. The replica removes
// it.
const rotateAnnotation = "akri.sh/rotate"

const (
	callTimeout  = 5 * time.Second
	initialDelay = 200 * time.Millisecond
	maxDelay     = 30 * time.Second
	// maxWait limits timers, because they do not follow changes of the wall clock.
	maxWait = time.Hour
)

var (
	errNoCertificate = errors.New("no server certificate yet")
	errNotFound      = errors.New("does not exist; install it with the Helm chart")
)

// Options of a Manager.
type Options struct {
	// Name of the Secret and the ConfigMap, which exist.
	Name string
	// Namespace of the Secret, ConfigMapNamespace of the ConfigMap.
	Namespace, ConfigMapNamespace string
	// DNSNames are the names of the server.
	DNSNames  []string
	Lifetimes Lifetimes
	Log       *zap.Logger
}

// Manager maintains the certificates of one replica.
type Manager struct {
	Options

	secrets    *kube.Client[*corev1.Secret, *corev1.SecretList]
	configMaps *kube.Client[*corev1.ConfigMap, *corev1.ConfigMapList]
	secret     *kube.Informer[*corev1.Secret]
	configMap  *kube.Informer[*corev1.ConfigMap]
	changed    broadcast.Signal
	// signed is the server certificate and the CA that signed it.
	signed atomic.Pointer[signed]
}

type signed struct {
	certificate tls.Certificate
	signer      pki.KeyPair
}

// New returns a Manager. It starts nothing.
func New(config *rest.Config, options Options) (m *Manager, err error) {
	m = &Manager{Options: options, changed: broadcast.NewSignal()}
	secrets, configMaps := corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("configmaps")
	if m.secrets, err = kube.NewClient[corev1.Secret, corev1.SecretList](config, secrets, corev1.AddToScheme); err != nil {
		return nil, err
	}
	if m.configMaps, err = kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](config, configMaps, corev1.AddToScheme); err != nil {
		return nil, err
	}
	m.secret = kube.NewNamedInformer(m.secrets, options.Namespace, options.Name)
	m.configMap = kube.NewNamedInformer(m.configMaps, options.ConfigMapNamespace, options.Name)
	m.secret.OnChange(func(string) { m.changed.Notify() })
	m.configMap.OnChange(func(string) { m.changed.Notify() })
	return m, nil
}

// GetCertificate is tls.Config.GetCertificate.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := m.signed.Load(); current != nil {
		return &current.certificate, nil
	}
	return nil, errNoCertificate
}

// Served returns the server certificate and the CA that signed it, or none before the first one.
func (m *Manager) Served() map[string]*x509.Certificate {
	current := m.signed.Load()
	if current == nil {
		return nil
	}
	return map[string]*x509.Certificate{"server": current.certificate.Leaf, "ca": current.signer.Leaf}
}

// Ready is a readiness check. It fails until the replica has a server certificate.
func (m *Manager) Ready(context.Context) error {
	_, err := m.GetCertificate(nil)
	return err
}

// Run renews the certificates until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	done := make(chan struct{}, 2)
	go func() { m.secret.RunWithContext(ctx); done <- struct{}{} }()
	go func() { m.configMap.RunWithContext(ctx); done <- struct{}{} }()
	defer func() { <-done; <-done }()
	if kube.WaitForSync(ctx, m.secret, m.configMap) != nil {
		return // ctx ended
	}
	delays := rpc.NewBackOff(initialDelay, maxDelay)
	for {
		after, err := m.reconcile(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			after = delays.NextBackOff()
			m.Log.Warn("renewing the certificates failed", zap.Error(err), zap.Duration("retry_in", after))
		} else {
			delays.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(after, maxWait)):
		case <-m.changed:
		}
	}
}

// reconcile makes one change at a time and returns when to continue. A change of the Secret or the
// ConfigMap makes Run continue at once.
func (m *Manager) reconcile(ctx context.Context, now time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secret, ok := m.secret.Get(m.Namespace + "/" + m.Name)
	if !ok {
		return 0, fmt.Errorf("secret %q %w", m.Name, errNotFound)
	}
	configMap, ok := m.configMap.Get(m.ConfigMapNamespace + "/" + m.Name)
	if !ok {
		return 0, fmt.Errorf("ConfigMap %q %w", m.Name, errNotFound)
	}
	_, rotate := secret.Annotations[rotateAnnotation]
	data, next, err := m.Lifetimes.renew(now, secret.Data, rotate)
	if err != nil {
		return 0, err
	}
	if rotate || !equal(data, secret.Data) {
		return next.Sub(now), m.updateSecret(ctx, secret, data)
	}
	if configMap.Data[BundleKey] != string(data[BundleKey]) {
		return next.Sub(now), m.publish(ctx, configMap, string(data[BundleKey]))
	}
	renewal, err := m.sign(now, data)
	return min(next.Sub(now), renewal), err
}

// updateSecret fails with a conflict, which is no error, if another replica was faster.
func (m *Manager) updateSecret(ctx context.Context, secret *corev1.Secret, data map[string][]byte) error {
	update := secret.DeepCopy()
	update.Data = data
	delete(update.Annotations, rotateAnnotation)
	_, err := m.secrets.In(m.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update Secret: %w", err)
	}
	m.Log.Info("CA of instance-writer renewed", zap.String("secret", m.Name))
	return nil
}

func (m *Manager) publish(ctx context.Context, configMap *corev1.ConfigMap, bundle string) error {
	update := configMap.DeepCopy()
	update.Data = map[string]string{BundleKey: bundle}
	_, err := m.configMaps.In(m.ConfigMapNamespace).Update(ctx, update, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("update ConfigMap: %w", err)
	}
	return nil
}

// sign renews the server certificate if necessary and returns the time until its next renewal. The
// CA is published at that time.
func (m *Manager) sign(now time.Time, data map[string][]byte) (time.Duration, error) {
	current := m.signed.Load()
	if current == nil || !bytes.Equal(current.signer.CertificatePEM, data[signerCertKey]) || !pki.Fresh(current.certificate.Leaf, now) {
		ca, err := pki.Load(data[signerCertKey], data[signerKeyKey])
		if err != nil {
			return 0, err
		}
		server, err := pki.NewServer(now, ca, "akri instance-writer", m.Lifetimes.Server, m.DNSNames)
		if err != nil {
			return 0, err
		}
		current = &signed{server.Certificate, ca}
		m.signed.Store(current)
	}
	return pki.RenewalTime(current.certificate.Leaf).Sub(now), nil
}
