package certificates

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"akri.sh/libs/pki"
)

// Keys of the Secret. The ConfigMap has BundleKey only.
const (
	// BundleKey has the certificates of all CAs that clients must trust.
	BundleKey = "ca.crt"
	// The CA that signs now.
	signerCertKey, signerKeyKey = "signer.crt", "signer.key"
	// The CA that signs next. Clients already trust it.
	nextCertKey, nextKeyKey = "next.crt", "next.key"
)

const caName = "akri instance-writer authority"

// Lifetimes of the certificates.
type Lifetimes struct {
	CA      time.Duration `help:"Lifetime of the CA. After two thirds of it the next CA is published." default:"8760h"`
	Server  time.Duration `help:"Lifetime of server certificates. They are renewed after two thirds of it." default:"24h"`
	Publish time.Duration `help:"Time for which a new CA is published before it signs. The kubelet updates mounted ConfigMaps within about two minutes." default:"1h"`
}

// Validate checks that a CA is valid for longer than its successor needs to replace it.
func (l Lifetimes) Validate() error {
	if l.CA <= 0 || l.Server <= 0 || l.Publish < 0 {
		return errors.New("lifetimes of certificates must be positive")
	}
	if l.CA/3 < l.Publish+l.Server {
		return fmt.Errorf("CA lifetime %s: must be at least three times the sum of the publish time %s and the server lifetime %s",
			l.CA, l.Publish, l.Server)
	}
	return nil
}

// renew returns the data that the Secret should have and the time of the next change. If nothing
// changes, it returns data itself.
//
// A new CA is first published in the bundle and signs later, when clients trust it. The previous CA
// stays in the bundle until all certificates that it has signed have expired. A CA that is missing,
// damaged or expired is replaced at once. With rotate the next CA is published now.
func (l Lifetimes) renew(now time.Time, data map[string][]byte, rotate bool) (renewed map[string][]byte, next time.Time, err error) {
	signer := load(now, data[signerCertKey], data[signerKeyKey])
	upcoming := load(now, data[nextCertKey], data[nextKeyKey])
	if signer == nil || (upcoming != nil && !now.Before(l.signsFrom(upcoming))) {
		signer, upcoming = upcoming, nil
	}
	if signer == nil {
		if signer, err = l.newCA(now); err != nil {
			return nil, next, err
		}
	}
	if upcoming == nil && (rotate || !pki.Fresh(signer.Leaf, now)) {
		if upcoming, err = l.newCA(now); err != nil {
			return nil, next, err
		}
	}
	renewed = map[string][]byte{signerCertKey: signer.CertificatePEM, signerKeyKey: signer.KeyPEM}
	next = pki.RenewalTime(signer.Leaf)
	if upcoming != nil {
		renewed[nextCertKey], renewed[nextKeyKey] = upcoming.CertificatePEM, upcoming.KeyPEM
		next = l.signsFrom(upcoming)
	}
	var previous []byte
	if expired := l.signsFrom(signer).Add(l.Server); now.Before(expired) {
		previous = data[BundleKey]
		if expired.Before(next) {
			next = expired
		}
	}
	renewed[BundleKey] = pki.Bundle(now, renewed[signerCertKey], renewed[nextCertKey], previous)
	if equal(data, renewed) {
		return data, next, nil
	}
	return renewed, next, nil
}

// load returns nil if the CA is missing, damaged or not valid now.
func load(now time.Time, certificate, key []byte) *pki.KeyPair {
	pair, err := pki.Load(certificate, key)
	if err != nil || now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		return nil
	}
	return &pair
}

func (l Lifetimes) newCA(now time.Time) (*pki.KeyPair, error) {
	ca, err := pki.NewCA(now, caName, l.CA)
	return &ca, err
}

// signsFrom returns when a CA starts to sign at the latest.
func (l Lifetimes) signsFrom(ca *pki.KeyPair) time.Time { return pki.Created(ca.Leaf).Add(l.Publish) }

// equal compares the keys of this package.
func equal(a, b map[string][]byte) bool {
	for _, key := range []string{BundleKey, signerCertKey, signerKeyKey, nextCertKey, nextKeyKey} {
		if !bytes.Equal(a[key], b[key]) {
			return false
		}
	}
	return true
}
