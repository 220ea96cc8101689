package opcua

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pkcs12 "software.sslmate.com/src/go-pkcs12"
)

// PKI is a directory with the layout of OPC UA applications, which the Secret
// opcua-broker-credentials of upstream Akri has, too:
//
//	own/certs      the certificate of the broker
//	own/private    its key, without a password
//	trusted/certs  certificates of servers, or of authorities that issue them
//	trusted/crl    revocation lists of these authorities
//	issuer/certs   authorities between these and the servers, which are not trusted by themselves
//
// Files are DER or PEM. The key may also be in a PKCS #12 file (.pfx).
type PKI string

// Exists returns whether there is a certificate of the broker.
func (p PKI) Exists() bool {
	files, _ := p.files("own/certs")
	return len(files) > 0
}

// Identity is the certificate of the broker and its key.
type Identity struct {
	Certificate *x509.Certificate
	Key         *rsa.PrivateKey
}

// Identity reads the certificate and the key of the broker.
func (p PKI) Identity() (Identity, error) {
	certificates, err := p.certificates("own/certs")
	if err != nil {
		return Identity{}, err
	}
	if len(certificates) != 1 {
		return Identity{}, fmt.Errorf("%s has %d certificates: must have one, that of the broker", p.path("own/certs"), len(certificates))
	}
	files, err := p.files("own/private")
	if err != nil {
		return Identity{}, err
	}
	if len(files) != 1 {
		return Identity{}, fmt.Errorf("%s has %d files: must have one, the key of the broker", p.path("own/private"), len(files))
	}
	key, err := readKey(files[0])
	if err != nil {
		return Identity{}, err
	}
	if !key.PublicKey.Equal(certificates[0].PublicKey) {
		return Identity{}, fmt.Errorf("%s is not the key of the certificate in %s", files[0], p.path("own/certs"))
	}
	return Identity{Certificate: certificates[0], Key: key}, nil
}

// Verify checks that the certificate of a server is valid and trusted.
func (p PKI) Verify(der []byte, now time.Time) (*x509.Certificate, error) {
	// Some servers append the certificates of their authorities.
	sent, err := x509.ParseCertificates(der)
	if err != nil || len(sent) == 0 {
		return nil, fmt.Errorf("the server has no valid certificate: %w", err)
	}
	server := sent[0]
	if _, ok := server.PublicKey.(*rsa.PublicKey); !ok {
		return nil, errors.New("the certificate of the server has no RSA key")
	}
	trusted, err := p.certificates("trusted/certs")
	if err != nil {
		return nil, err
	}
	issuers, err := p.certificates("issuer/certs")
	if err != nil {
		return nil, err
	}

	if slices.ContainsFunc(trusted, server.Equal) {
		if now.Before(server.NotBefore) || now.After(server.NotAfter) {
			return nil, fmt.Errorf("the certificate of the server is valid from %s to %s", server.NotBefore.Format(time.DateTime), server.NotAfter.Format(time.DateTime))
		}
		return server, nil
	}
	options := x509.VerifyOptions{
		Roots: pool(trusted), Intermediates: pool(append(issuers, sent[1:]...)),
		CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	chains, err := server.Verify(options)
	if err != nil {
		return nil, fmt.Errorf("the certificate of the server (%s) is not trusted: %w; add it or its authority to %s", server.Subject, err, p.path("trusted/certs"))
	}
	return server, p.notRevoked(chains[0])
}

func pool(certificates []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, certificate := range certificates {
		pool.AddCert(certificate)
	}
	return pool
}

// notRevoked checks a chain with the revocation lists of its authorities. An old list counts, too:
// a certificate that was revoked once stays so.
func (p PKI) notRevoked(chain []*x509.Certificate) error {
	files, err := p.files("trusted/crl")
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := readDER(file, "X509 CRL")
		if err != nil {
			return err
		}
		list, err := x509.ParseRevocationList(data)
		if err != nil {
			return fmt.Errorf("parse %s: %w", file, err)
		}
		for i, certificate := range chain[:len(chain)-1] {
			if list.CheckSignatureFrom(chain[i+1]) != nil {
				continue // of another authority
			}
			for _, revoked := range list.RevokedCertificateEntries {
				if revoked.SerialNumber.Cmp(certificate.SerialNumber) == 0 {
					return fmt.Errorf("the certificate %s is revoked by %s", certificate.Subject, file)
				}
			}
		}
	}
	return nil
}

func (p PKI) certificates(directory string) (all []*x509.Certificate, err error) {
	files, err := p.files(directory)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := readDER(file, "CERTIFICATE")
		if err != nil {
			return nil, err
		}
		certificates, err := x509.ParseCertificates(data)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		all = append(all, certificates...)
	}
	return all, nil
}

func (p PKI) path(directory string) string { return filepath.Join(string(p), directory) }

// files returns the files of a directory. A directory that does not exist is empty.
func (p PKI) files(directory string) (files []string, err error) {
	entries, err := os.ReadDir(p.path(directory))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	for _, entry := range entries {
		// The files of a mounted Secret are links into hidden directories.
		if !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, filepath.Join(p.path(directory), entry.Name()))
		}
	}
	return files, nil
}

// readDER reads a DER file, or the blocks of a kind of a PEM file.
func readDER(file, kind string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	if !bytes.Contains(data, []byte("-----BEGIN ")) {
		return data, nil
	}
	var der []byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, kind) {
			der = append(der, block.Bytes...)
		}
	}
	if der == nil {
		return nil, fmt.Errorf("%s has no %s", file, kind)
	}
	return der, nil
}

// readKey reads an RSA key in PKCS #1, PKCS #8 or PKCS #12. Its errors do not contain the file.
func readKey(file string) (*rsa.PrivateKey, error) {
	data, err := readDER(file, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	if key, err := x509.ParsePKCS1PrivateKey(data); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(data)
	if err != nil {
		parsed, _, _, err = pkcs12.DecodeChain(data, "")
	}
	if key, ok := parsed.(*rsa.PrivateKey); ok && err == nil {
		return key, nil
	}
	return nil, fmt.Errorf("%s: must be an RSA key without a password in PKCS #1, #8 or #12", file)
}
