package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority is the cluster's certificate authority: servers and clients know each other by it.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// identity is whom a certificate speaks for: a user with its groups, a server with its addresses, or both.
type identity struct {
	name   string
	groups []string
	hosts  []string
}

// newAuthority makes an authority and a key for service account tokens in dir, as ca.crt, ca.key, sa.key and sa.pub.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create pki folder: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority key: %w", err)
	}
	template := certificate(identity{name: "akri-cluster"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	a := &authority{dir: dir, cert: template, key: key, pem: encode("CERTIFICATE", der)}
	// The authority's own key is written too: the controller manager signs certificate requests with it.
	if err := a.write("ca", a.pem, key); err != nil {
		return nil, err
	}
	return a, a.writeServiceAccountKey()
}

func (a *authority) writeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	if err := a.write("sa", nil, key); err != nil {
		return err
	}
	return os.WriteFile(a.file("sa.pub"), encode("PUBLIC KEY", public), 0o600)
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes <file>.crt and <file>.key for who.
func (a *authority) issue(file string, who identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate(who), a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("make certificate of %s: %w", who.name, err)
	}
	return a.write(file, encode("CERTIFICATE", der), key)
}

func (a *authority) write(file string, cert []byte, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if cert != nil {
		if err := os.WriteFile(a.file(file+".crt"), cert, 0o600); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
	}
	if err := os.WriteFile(a.file(file+".key"), encode("EC PRIVATE KEY", der), 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// kubeconfig issues a client certificate for who and writes a kubeconfig to path that holds all that a client needs.
func (a *authority) kubeconfig(path, server string, who identity) error {
	if err := a.issue(who.fileName(), who); err != nil {
		return err
	}
	cert, err := os.ReadFile(a.file(who.fileName() + ".crt"))
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	key, err := os.ReadFile(a.file(who.fileName() + ".key"))
	if err != nil {
		return fmt.Errorf("read key: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["akri"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	config.AuthInfos[who.name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["akri"] = &clientcmdapi.Context{Cluster: "akri", AuthInfo: who.name}
	config.CurrentContext = "akri"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// fileName has no colons: user names of Kubernetes do.
func (i identity) fileName() string {
	name := []byte(i.name)
	for n, c := range name {
		if c == ':' {
			name[n] = '-'
		}
	}
	return string(name)
}

// certificate lasts a year: longer than any cluster of this kind is kept.
func certificate(who identity) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader never fails
	cert := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: who.name, Organization: who.groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range who.hosts {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	return cert
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
