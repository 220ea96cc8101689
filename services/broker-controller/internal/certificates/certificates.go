// Package certificates makes and renews the certificate of a webhook: an authority of its own, and
// a certificate of it for the server. It is pure, but for chance: what it returns is the content of
// a Secret.
package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Keys of the Secret: those of cert-manager, and that of the authority's private key.
const (
	Certificate  = "tls.crt"
	Key          = "tls.key"
	Authority    = "ca.crt"
	AuthorityKey = "ca.key"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	serverLife    = 90 * 24 * time.Hour
	// backdated, for clocks that are behind.
	backdated  = time.Hour
	serialBits = 127
)

var errNoPEM = errors.New("no PEM block")

// Renewed returns what the Secret should hold, whether that differs from what it holds, and when to
// look again. A certificate is renewed when two thirds of its life are over, or when it is not for
// all of the names. A new authority stands beside the old one until that has expired, so that no
// replica is distrusted meanwhile.
func Renewed(now time.Time, data map[string][]byte, names []string) (renewed map[string][]byte, changed bool, next time.Time, err error) {
	authority, authorityErr := parsePair(data[Authority], data[AuthorityKey])
	server, serverErr := parsePair(data[Certificate], data[Key])
	freshAuthority := authorityErr == nil && authority.fresh(now)
	if freshAuthority && serverErr == nil && server.fresh(now) && server.serves(names, data[Authority], now) {
		return data, false, earlier(authority.due(), server.due()), nil
	}
	bundle := data[Authority]
	if !freshAuthority {
		if authority, err = newAuthority(now); err != nil {
			return nil, false, time.Time{}, err
		}
		bundle = slices.Concat(authority.certificatePEM(), valid(data[Authority], now))
	}
	if server, err = newServer(now, authority, names); err != nil {
		return nil, false, time.Time{}, err
	}
	serverKey, err := server.keyPEM()
	if err != nil {
		return nil, false, time.Time{}, err
	}
	authorityKey, err := authority.keyPEM()
	if err != nil {
		return nil, false, time.Time{}, err
	}
	return map[string][]byte{
		Certificate: server.certificatePEM(), Key: serverKey, Authority: bundle, AuthorityKey: authorityKey,
	}, true, earlier(authority.due(), server.due()), nil
}

// Trust is the bundle by which the certificate in the Secret can be checked: the authority's, or
// its own when somebody made it without one.
func Trust(data map[string][]byte) []byte {
	if len(data[Authority]) > 0 {
		return data[Authority]
	}
	return data[Certificate]
}

// Pair is the certificate to serve with.
func Pair(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[Certificate], data[Key])
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return &pair, nil
}

type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// parsePair reads the first certificate of a bundle and its key.
func parsePair(certificate, key []byte) (p pair, err error) {
	block, _ := pem.Decode(certificate)
	keyBlock, _ := pem.Decode(key)
	if block == nil || keyBlock == nil {
		return p, errNoPEM
	}
	if p.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return p, fmt.Errorf("parse certificate: %w", err)
	}
	if p.key, err = x509.ParseECPrivateKey(keyBlock.Bytes); err != nil {
		return p, fmt.Errorf("parse key: %w", err)
	}
	if !p.key.PublicKey.Equal(p.certificate.PublicKey) {
		return p, errors.New("key is not that of the certificate")
	}
	return p, nil
}

// due is when to renew it.
func (p pair) due() time.Time {
	return p.certificate.NotBefore.Add(p.certificate.NotAfter.Sub(p.certificate.NotBefore) * 2 / 3)
}

func (p pair) fresh(now time.Time) bool {
	return !now.Before(p.certificate.NotBefore) && now.Before(p.due())
}

func (p pair) serves(names []string, authority []byte, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	for _, name := range names {
		if _, err := p.certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			return false
		}
	}
	return true
}

func (p pair) certificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate.Raw})
}

func (p pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func newAuthority(now time.Time) (pair, error) {
	return issue(now, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "akri webhook authority"},
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil)
}

func newServer(now time.Time, authority pair, names []string) (pair, error) {
	return issue(now, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "akri webhook"},
		NotAfter:    now.Add(serverLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    names,
	}, &authority)
}

// issue signs the template with the key of `by`; nil: with its own.
func issue(now time.Time, template *x509.Certificate, by *pair) (p pair, err error) {
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return p, fmt.Errorf("make key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits)); err != nil {
		return p, fmt.Errorf("make serial number: %w", err)
	}
	template.NotBefore = now.Add(-backdated)
	parent, signer := template, p.key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &p.key.PublicKey, signer)
	if err != nil {
		return p, fmt.Errorf("sign certificate: %w", err)
	}
	if p.certificate, err = x509.ParseCertificate(der); err != nil {
		return p, fmt.Errorf("parse certificate: %w", err)
	}
	return p, nil
}

// valid returns those certificates of a bundle that have not expired.
func valid(bundle []byte, now time.Time) []byte {
	var kept bytes.Buffer
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(certificate.NotAfter) {
			kept.Write(pem.EncodeToMemory(block))
		}
	}
	return kept.Bytes()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
