package webhook

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/pki"
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
)

// RenewCertificate returns the data that the Secret should have, whether it differs from the
// current data, and the time of the next renewal. It renews a certificate after two thirds of its
// lifetime, or when it is not valid for all names. A new CA certificate is added to the bundle and
// the old one stays until it expires, because other replicas can still serve with it.
func RenewCertificate(
	now time.Time, data map[string][]byte, names []string,
) (renewed map[string][]byte, changed bool, next time.Time, err error) {
	ca, caErr := pki.Load(data[CACertKey], data[CAPrivateKeyKey])
	server, serverErr := pki.Load(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	bundle := data[CACertKey]
	renewCA := caErr != nil || !pki.Fresh(ca.Leaf, now)
	if !renewCA && serverErr == nil && pki.Fresh(server.Leaf, now) && validFor(server, names, bundle, now) {
		return data, false, nextRenewal(ca, server), nil
	}
	if renewCA {
		if ca, err = pki.NewCA(now, "akri webhook authority", caLifetime); err != nil {
			return nil, false, time.Time{}, err
		}
		bundle = pki.Bundle(now, ca.CertificatePEM, bundle)
	}
	if server, err = pki.NewServer(now, ca, "akri webhook", serverLifetime, names); err != nil {
		return nil, false, time.Time{}, err
	}
	return map[string][]byte{
		corev1.TLSCertKey: server.CertificatePEM, corev1.TLSPrivateKeyKey: server.KeyPEM,
		CACertKey: bundle, CAPrivateKeyKey: ca.KeyPEM,
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

func nextRenewal(ca, server pki.KeyPair) time.Time {
	return slices.MinFunc([]time.Time{pki.RenewalTime(ca.Leaf), pki.RenewalTime(server.Leaf)}, time.Time.Compare)
}

func validFor(server pki.KeyPair, names []string, bundle []byte, now time.Time) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return pki.Verify(&server.Certificate, bundle, name, now) != nil
	})
}
