package webhook

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret beside corev1.TLSCertKey and corev1.TLSPrivateKeyKey. cert-manager uses
// CACertKey, too.
const (
	CACertKey       = "ca.crt"
	CAPrivateKeyKey = "ca.key"
)

const (
	caLifetime     = 10 * 365 * 24 * time.Hour
	serverLifetime = 90 * 24 * time.Hour
	// backdate is for clients whose clocks are behind.
	backdate   = time.Hour
	serialBits = 127
)

// RenewCertificate returns the data that the Secret should have, whether it differs from the
// current data, and the time of the next renewal. It renews a certificate after two thirds of its
// lifetime, or when it is not valid for all names. A new CA certificate is added to the bundle and
// the old one stays until it expires, because other replicas can still serve with it.
func RenewCertificate(
	now time.Time, data map[string][]byte, names []string,
) (renewed map[string][]byte, changed bool, next time.Time, err error) {
	ca, caErr := loadKeyPair(data[CACertKey], data[CAPrivateKeyKey])
	server, serverErr := loadKeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	bundle := data[CACertKey]
	renewCA := caErr != nil || !fresh(ca.Leaf, now)
	if !renewCA && serverErr == nil && fresh(server.Leaf, now) && validFor(server.Leaf, names, bundle, now) {
		return data, false, nextRenewal(ca, server), nil
	}
	if renewCA {
		if ca, err = newCA(now); err != nil {
			return nil, false, time.Time{}, err
		}
		bundle = slices.Concat(ca.certificatePEM, unexpired(bundle, now))
	}
	if server, err = newServerCertificate(now, ca, names); err != nil {
		return nil, false, time.Time{}, err
	}
	return map[string][]byte{
		corev1.TLSCertKey: server.certificatePEM, corev1.TLSPrivateKeyKey: server.keyPEM,
		CACertKey: bundle, CAPrivateKeyKey: ca.keyPEM,
	}, true, nextRenewal(ca, server), nil
}

// CABundle returns the certificates that verify the server certificate of the Secret. A certificate
// without CA verifies itself.
func CABundle(data map[string][]byte) []byte {
	if len(data[CACertKey]) > 0 {
		return data[CACertKey]
	}
	return data[corev1.TLSCertKey]
}

// keyPair is a certificate with its key, parsed and in PEM.
type keyPair struct {
	tls.Certificate

	certificatePEM, keyPEM []byte
}

func loadKeyPair(certificatePEM, keyPEM []byte) (keyPair, error) {
	certificate, err := tls.X509KeyPair(certificatePEM, keyPEM)
	if err != nil {
		return keyPair{}, fmt.Errorf("read certificate: %w", err)
	}
	return keyPair{certificate, certificatePEM, keyPEM}, nil
}

func renewalTime(certificate *x509.Certificate) time.Time {
	return certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) * 2 / 3)
}

func nextRenewal(ca, server keyPair) time.Time {
	return slices.MinFunc([]time.Time{renewalTime(ca.Leaf), renewalTime(server.Leaf)}, time.Time.Compare)
}

func fresh(certificate *x509.Certificate, now time.Time) bool {
	return !now.Before(certificate.NotBefore) && now.Before(renewalTime(certificate))
}

func validFor(certificate *x509.Certificate, names []string, bundle []byte, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, name := range names {
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			return false
		}
	}
	return true
}

// verifyChain verifies the chain of a server with the certificates of a bundle.
func verifyChain(chain *tls.Certificate, bundle []byte, name string, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, der := range chain.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(certificate)
		}
	}
	_, err := chain.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, DNSName: name, CurrentTime: now,
	})
	return err
}

func newCA(now time.Time) (keyPair, error) {
	return issue(now, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "akri webhook authority"},
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil)
}

func newServerCertificate(now time.Time, ca keyPair, names []string) (keyPair, error) {
	return issue(now, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "akri webhook"},
		NotAfter:    now.Add(serverLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    names,
	}, &ca)
}

// issue returns a certificate with a new key. It is signed by ca, or self-signed if ca is nil.
func issue(now time.Time, template *x509.Certificate, ca *keyPair) (pair keyPair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, fmt.Errorf("generate key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits)); err != nil {
		return pair, fmt.Errorf("generate serial number: %w", err)
	}
	template.NotBefore = now.Add(-backdate)
	parent, signer := template, crypto.PrivateKey(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return pair, fmt.Errorf("sign certificate: %w", err)
	}
	encodedKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair, fmt.Errorf("encode key: %w", err)
	}
	return loadKeyPair(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encodedKey}))
}

// unexpired returns the certificates of a bundle that have not expired.
func unexpired(bundle []byte, now time.Time) []byte {
	var kept bytes.Buffer
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(certificate.NotAfter) {
			kept.Write(pem.EncodeToMemory(block))
		}
	}
	return kept.Bytes()
}
