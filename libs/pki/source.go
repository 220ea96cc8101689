package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"
)

// Dir is a directory with tls.crt and tls.key, such as a mounted Secret of cert-manager. The files
// are read at each handshake, so that a renewed certificate is used at once.
type Dir string

// GetCertificate is tls.Config.GetCertificate.
func (d Dir) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(
		filepath.Join(string(d), "tls.crt"), filepath.Join(string(d), "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read server certificate: %w", err)
	}
	return &certificate, nil
}

// Served returns the server certificate, or none if it cannot be read.
func (d Dir) Served() map[string]*x509.Certificate {
	certificate, err := d.GetCertificate(nil)
	if err != nil {
		return nil
	}
	return map[string]*x509.Certificate{"server": certificate.Leaf}
}

// Ready is a readiness check. It fails if the certificate cannot be read.
func (d Dir) Ready(context.Context) error {
	_, err := d.GetCertificate(nil)
	return err
}
