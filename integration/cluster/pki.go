package cluster

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/pki"
)

// certificateLifetime is the time for which all certificates have been valid, and for which they
// still are: the cluster is not new for a machine that boots with an old clock.
const certificateLifetime = 365 * 24 * time.Hour

// authority is the cluster's certificate authority. It issues all server and client certificates.
type authority struct {
	dir string
	ca  *pki.KeyPair
}

// identity is the subject of a certificate: a user with its groups, a server with its addresses, or
// both.
type identity struct {
	name   string
	groups []string
	hosts  []string
}

// newAuthority creates an authority in dir, as ca.crt and ca.key. The controller manager signs
// certificate requests with them.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create PKI directory: %w", err)
	}
	ca, err := pki.NewCA(time.Now().Add(-certificateLifetime), "akri-cluster", 2*certificateLifetime)
	if err != nil {
		return nil, fmt.Errorf("create authority: %w", err)
	}
	a := &authority{dir: dir, ca: ca}
	return a, a.write("ca", ca)
}

// openAuthority returns the authority that newAuthority created in dir.
func openAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	certificate, err := os.ReadFile(a.file("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	key, err := os.ReadFile(a.file("ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	a.ca, err = pki.Load(certificate, key)
	return a, err
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes <file>.crt and <file>.key for the subject.
func (a *authority) issue(file string, subject identity) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: subject.name, Organization: subject.groups},
		NotBefore:   a.ca.Leaf.NotBefore,
		NotAfter:    a.ca.Leaf.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range subject.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	issued, err := pki.Issue(time.Now(), template, a.ca)
	if err != nil {
		return fmt.Errorf("create certificate of %s: %w", subject.name, err)
	}
	return a.write(file, issued)
}

func (a *authority) write(file string, issued *pki.KeyPair) error {
	if err := os.WriteFile(a.file(file+".crt"), issued.CertificatePEM, 0o600); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	if err := os.WriteFile(a.file(file+".key"), issued.KeyPEM, 0o600); err != nil {
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
