package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/gauge"
)

// ErrNoCertificate is the error of a server that has no certificate yet.
var ErrNoCertificate = errors.New("no server certificate yet")

// Source is a tls.Config.GetCertificate that always returns the current certificate of the server.
// Its argument may be nil.
type Source func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Ready is a readiness check. It fails if there is no certificate.
func (s Source) Ready(context.Context) error {
	_, err := s(nil)
	return err
}

// Leaf returns the certificate, or nil if there is none.
func (s Source) Leaf() *x509.Certificate {
	certificate, err := s(nil)
	if err != nil {
		return nil
	}
	return certificate.Leaf
}

// Dir is the Source of a directory with tls.crt and tls.key, such as a mounted Secret of
// cert-manager. The files are read at each handshake, so that a renewed certificate is used at
// once.
func Dir(directory string) Source {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := tls.LoadX509KeyPair(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("read server certificate: %w", err)
		}
		return &certificate, nil
	}
}

// Current is the certificate that a server uses now. It is nil before the first one.
type Current struct{ atomic.Pointer[KeyPair] }

// GetCertificate is a Source.
func (c *Current) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := c.Load(); current != nil {
		return &current.Certificate, nil
	}
	return nil, ErrNoCertificate
}

// Expiry exports when certificates expire, by name. Functions return nil for certificates that do
// not exist yet.
func Expiry(help string, certificates map[string]func() *x509.Certificate) prometheus.Collector {
	return gauge.OnScrape("akri_certificate_expiry_timestamp_seconds", help, []string{"certificate"}, func(expiry *prometheus.GaugeVec) {
		for name, current := range certificates {
			if certificate := current(); certificate != nil {
				expiry.WithLabelValues(name).Set(float64(certificate.NotAfter.Unix()))
			}
		}
	})
}
