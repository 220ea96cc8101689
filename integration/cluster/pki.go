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
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority is the cluster's certificate authority. It issues all server and client certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// identity is the subject of a certificate: a user with its groups, a server with its addresses, or
// both.
type identity struct {
	name   string
	groups []string
	hosts  []string
}

// newAuthority creates an authority in dir, as ca.crt and ca.key.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create PKI directory: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate authority key: %w", err)
	}
	template := certificate(identity{name: "akri-cluster"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create authority: %w", err)
	}
	a := &authority{dir: dir, cert: template, key: key}
	// The controller manager signs certificate requests with the authority's key.
	return a, a.write("ca", encode("CERTIFICATE", der), key)
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes <file>.crt and <file>.key for the subject.
func (a *authority) issue(file string, subject identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate(subject), a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("create certificate of %s: %w", subject.name, err)
	}
	return a.write(file, encode("CERTIFICATE", der), key)
}

func (a *authority) write(file string, cert []byte, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if err := os.WriteFile(a.file(file+".crt"), cert, 0o600); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	if err := os.WriteFile(a.file(file+".key"), encode("EC PRIVATE KEY", der), 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// kubeconfig issues a client certificate for the user and writes a self-contained kubeconfig to
// path.
func (a *authority) kubeconfig(path, server string, user identity) error {
	file := strings.ReplaceAll(user.name, ":", "-") // Kubernetes user names contain colons
	if err := a.issue(file, user); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["akri"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: a.file("ca.crt")}
	config.AuthInfos[user.name] = &clientcmdapi.AuthInfo{ClientCertificate: a.file(file + ".crt"), ClientKey: a.file(file + ".key")}
	config.Contexts["akri"] = &clientcmdapi.Context{Cluster: "akri", AuthInfo: user.name}
	config.CurrentContext = "akri"
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return fmt.Errorf("read certificates: %w", err)
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// certificate returns a template that is valid for a year.
func certificate(subject identity) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader never fails
	cert := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject.name, Organization: subject.groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range subject.hosts {
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
