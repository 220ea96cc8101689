package opcua_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pkcs12 "software.sslmate.com/src/go-pkcs12"
)

// certificate is one of an OPC UA application or an authority.
type certificate struct {
	der    []byte
	parsed *x509.Certificate
	key    *rsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *certificate {
	t.Helper()
	return create(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
}

// application returns the certificate of an application, with what OPC 10000-6, 6.2.2 requires. It
// signs it itself if it has no authority.
func application(t *testing.T, name, uri string, authority *certificate) *certificate {
	t.Helper()
	parsed, err := url.Parse(uri)
	require.NoError(t, err)
	return create(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, URIs: []*url.URL{parsed}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment | x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}, authority)
}

// create signs with an authority, or with the own key.
func create(t *testing.T, template *x509.Certificate, authority *certificate) *certificate {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if authority != nil {
		parent, signer = authority.parsed, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &certificate{der, parsed, key}
}

func (c *certificate) pkcs8(t *testing.T) []byte {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	require.NoError(t, err)
	return key
}

type certificateFiles struct{ certificate, key string }

// write writes PEM files.
func (c *certificate) write(t *testing.T, directory, name string) certificateFiles {
	t.Helper()
	files := certificateFiles{filepath.Join(directory, name+".pem"), filepath.Join(directory, name+"-key.pem")}
	write(t, files.certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.der}))
	write(t, files.key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(c.key)}))
	return files
}

// writePKI writes the directory of an application.
func (c *certificate) writePKI(t *testing.T, directory string, trusted ...[]byte) string {
	t.Helper()
	write(t, filepath.Join(directory, "own", "certs", "broker.der"), c.der)
	write(t, filepath.Join(directory, "own", "private", "broker.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: c.pkcs8(t)}))
	for _, der := range trusted {
		write(t, filepath.Join(directory, "trusted", "certs", "ca.der"), der)
	}
	return directory
}

// writePFX writes a directory with the files of upstream Akri's Secret opcua-broker-credentials.
func (c *certificate) writePFX(t *testing.T, directory string, trusted []byte) string {
	t.Helper()
	write(t, filepath.Join(directory, "own", "certs", "AkriBroker.der"), c.der)
	pfx, err := pkcs12.LegacyDES.Encode(c.key, c.parsed, nil, "")
	require.NoError(t, err)
	write(t, filepath.Join(directory, "own", "private", "AkriBroker.pfx"), pfx)
	write(t, filepath.Join(directory, "trusted", "certs", "SomeCA.der"), trusted)
	return directory
}

// revoke adds a list that revokes a certificate to the directory of an application.
func (c *certificate) revoke(t *testing.T, directory string, revoked *certificate) string {
	t.Helper()
	list, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: revoked.parsed.SerialNumber, RevocationTime: time.Now()}},
	}, c.parsed, c.key)
	require.NoError(t, err)
	write(t, filepath.Join(directory, "trusted", "crl", "SomeCA.crl"), list)
	return directory
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, content, 0o600))
}
