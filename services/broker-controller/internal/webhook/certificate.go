package webhook

import (
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

// lifetimes has no time to publish a CA before it signs: the certificate is in the Secret, and
// changeCertificate delays its use.
var lifetimes = pki.Lifetimes{CA: 10 * 365 * 24 * time.Hour, Server: 90 * 24 * time.Hour}

// RenewCertificate returns the data that the Secret should have, whether it differs from the
// current data, and the time of the next renewal. It renews a certificate after two thirds of its
// lifetime, or when it is not valid for all names.
func RenewCertificate(
	now time.Time, data map[string][]byte, names []string,
) (renewed map[string][]byte, changed bool, next time.Time, err error) {
	// A damaged certificate is a missing one. Behind the CA that signs are those before it. They
	// are loaded with it and so stay until they expire, because other replicas can still serve with
	// their certificates.
	ca, _ := pki.Load(data[CACertKey], data[CAPrivateKeyKey])
	current, _ := pki.Load(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	stored := pki.Authority{Signer: ca, Bundle: data[CACertKey]}
	issuer := pki.Issuer{Name: "akri webhook", DNSNames: names, Lifetimes: lifetimes}

	authority, next, err := issuer.RenewCA(now, stored, false)
	if err != nil {
		return nil, false, next, err
	}
	server, err := issuer.RenewServer(now, current, authority.Signer)
	if err != nil {
		return nil, false, next, err
	}
	if renewal := issuer.ServerRenewal(server, authority.Signer); renewal.Before(next) {
		next = renewal
	}
	if server == current && authority.Equal(stored) {
		return data, false, next, nil
	}
	return map[string][]byte{
		corev1.TLSCertKey: server.CertificatePEM, corev1.TLSPrivateKeyKey: server.KeyPEM,
		CACertKey: authority.Bundle, CAPrivateKeyKey: authority.Signer.KeyPEM,
	}, true, next, nil
}

// CABundle returns the certificates that verify the server certificate of the Secret. A certificate
// without CA verifies itself.
func CABundle(data map[string][]byte) []byte {
	if len(data[CACertKey]) > 0 {
		return data[CACertKey]
	}
	return data[corev1.TLSCertKey]
}
