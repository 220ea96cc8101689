// Package pki creates CA certificates and server certificates and decides when to renew them. An
// Issuer does so for a service, and a Source has the certificate that a server uses.
package pki

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
)

const (
	// Backdate is the time before its creation from which a CA is valid. It is for clients whose
	// clocks are behind.
	Backdate   = time.Hour
	serialBits = 127
	// clockInterval is how often a certificate is compared with the clock, which can be set. Timers
	// do not follow that.
	clockInterval = time.Minute
)

// KeyPair is a certificate with its key, parsed and in PEM.
type KeyPair struct {
	tls.Certificate

	CertificatePEM, KeyPEM []byte
}

// Load parses a certificate and its key.
func Load(certificatePEM, keyPEM []byte) (*KeyPair, error) {
	certificate, err := tls.X509KeyPair(certificatePEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return &KeyPair{certificate, certificatePEM, keyPEM}, nil
}

// NewCA returns a CA with a new key.
func NewCA(now time.Time, name string, lifetime time.Duration) (*KeyPair, error) {
	return Issue(now, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil)
}

// NewServer returns a server certificate for the DNS names with a new key. It is valid from the
// beginning of the CA, for clients that trust the CA and whose clocks are behind, such as that of a
// machine that was off for weeks. It expires with the CA at the latest.
func NewServer(now time.Time, ca *KeyPair, name string, lifetime time.Duration, dnsNames []string) (*KeyPair, error) {
	expiry := now.Add(lifetime)
	if expiry.After(ca.Leaf.NotAfter) {
		expiry = ca.Leaf.NotAfter
	}
	return Issue(now, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   ca.Leaf.NotBefore,
		NotAfter:    expiry,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    dnsNames,
	}, ca)
}

// Issue returns a certificate with a new key. It is signed by ca, or self-signed if ca is nil. It
// is valid from Backdate before now unless NotBefore is set.
func Issue(now time.Time, template *x509.Certificate, ca *KeyPair) (*KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = now.Add(-Backdate)
	}
	parent, signer := template, crypto.PrivateKey(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	encodedKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return Load(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encodedKey}))
}

// Created returns the time at which this package created the CA.
func Created(certificate *x509.Certificate) time.Time { return certificate.NotBefore.Add(Backdate) }

// RenewalTime returns the time after two thirds of the lifetime of a CA.
func RenewalTime(certificate *x509.Certificate) time.Time {
	created := Created(certificate)
	return created.Add(certificate.NotAfter.Sub(created) * 2 / 3)
}

// Fresh reports whether a CA is valid and need not be renewed.
func Fresh(certificate *x509.Certificate, now time.Time) bool {
	return !now.Before(certificate.NotBefore) && now.Before(RenewalTime(certificate))
}

// Wait returns how long to wait for the first of the times. It is at most a minute, so that
// certificates that expired because the clock was set are renewed within that.
func Wait(now time.Time, times ...time.Time) time.Duration {
	return min(slices.MinFunc(times, time.Time.Compare).Sub(now), clockInterval)
}

// Verify verifies the chain of a server for a DNS name with the CA certificates of a bundle.
func Verify(chain *KeyPair, bundle []byte, name string, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, der := range chain.Certificate.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(certificate)
		}
	}
	_, err := chain.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, DNSName: name, CurrentTime: now,
	})
	return err
}

// Bundle joins certificates in PEM, without those that have expired and without duplicates.
func Bundle(now time.Time, parts ...[]byte) []byte {
	var bundle []byte
	for block, rest := pem.Decode(bytes.Join(parts, nil)); block != nil; block, rest = pem.Decode(rest) {
		encoded := pem.EncodeToMemory(block)
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && now.Before(certificate.NotAfter) && !bytes.Contains(bundle, encoded) {
			bundle = append(bundle, encoded...)
		}
	}
	return bundle
}
