// Package controlplane holds the command lines, the service account key and the readiness check of
// etcd and kube-apiserver. Package kubetest runs the two as children of a test; integration/cluster
// runs them as daemons in a network namespace.
package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// Names of the two binaries.
const (
	Etcd      = "etcd"
	APIServer = "kube-apiserver"
)

const readyTimeout = 2 * time.Second

// Config is the part of the servers' configuration that all callers set.
type Config struct {
	// Dir holds the service account key, EtcdDataDir etcd's data.
	Dir, EtcdDataDir string
	// EtcdClientURL and EtcdPeerURL are where etcd listens, such as http://127.0.0.1:2379.
	EtcdClientURL, EtcdPeerURL string
	// BindAddress and SecurePort are where the API server listens.
	BindAddress, SecurePort string
	// ServiceCIDR is the range of ClusterIPs.
	ServiceCIDR string
}

// EtcdFlags are the flags of etcd. It does not sync to disk: no test outlives a crash of the
// machine.
func (c Config) EtcdFlags() []string {
	return []string{
		"--data-dir=" + c.EtcdDataDir, "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + c.EtcdClientURL, "--advertise-client-urls=" + c.EtcdClientURL,
		"--listen-peer-urls=" + c.EtcdPeerURL, "--initial-advertise-peer-urls=" + c.EtcdPeerURL,
		"--initial-cluster=default=" + c.EtcdPeerURL,
	}
}

// APIServerFlags are the flags of kube-apiserver except those for authentication of clients.
func (c Config) APIServerFlags() []string {
	return []string{
		"--etcd-servers=" + c.EtcdClientURL,
		"--bind-address=" + c.BindAddress, "--secure-port=" + c.SecurePort,
		"--service-cluster-ip-range=" + c.ServiceCIDR,
		"--service-account-key-file=" + c.ServiceAccountKey(),
		"--service-account-signing-key-file=" + c.ServiceAccountKey(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
	}
}

// ServiceAccountKey is the file with the private key that signs service account tokens.
func (c Config) ServiceAccountKey() string { return filepath.Join(c.Dir, "service-account.key") }

// WriteServiceAccountKey generates the key of ServiceAccountKey.
func (c Config) WriteServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate service account key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(c.ServiceAccountKey(), text, 0o600); err != nil {
		return fmt.Errorf("write service account key: %w", err)
	}
	return nil
}

// Ready returns nil if the API server answers within two seconds that it is ready.
func Ready(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("API server is not ready: %s", response.Status)
	}
	return nil
}
