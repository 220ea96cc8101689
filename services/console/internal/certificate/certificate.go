// Package certificate makes a server certificate in memory.
package certificate

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/pki"
)

// lifetime is short enough for browsers, which refuse certificates of more than 398 days.
const lifetime = 90 * 24 * time.Hour

// InMemory is a certificate that no CA has signed which others trust. Its key never leaves the
// process, and the next process makes another.
type InMemory struct {
	dnsNames []string
	log      *zap.Logger

	mu      sync.Mutex
	current *tls.Certificate
}

// New returns an InMemory for the names of the server.
func New(dnsNames []string, log *zap.Logger) *InMemory {
	return &InMemory{dnsNames: dnsNames, log: log}
}

// GetCertificate is tls.Config.GetCertificate. It renews the certificate after two thirds of its
// lifetime.
func (c *InMemory) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.current != nil && pki.Fresh(c.current.Leaf, now) {
		return c.current, nil
	}
	ca, err := pki.NewCA(now, "akri console", lifetime)
	if err != nil {
		return nil, err
	}
	server, err := pki.NewServer(now, ca, "akri console", lifetime, c.dnsNames)
	if err != nil {
		return nil, err
	}
	c.current = &server.Certificate
	digest := sha256.Sum256(server.Leaf.Raw)
	c.log.Info("certificate created; compare its SHA-256 fingerprint with that in the browser",
		zap.String("fingerprint", hex.EncodeToString(digest[:])), zap.Time("expires", server.Leaf.NotAfter))
	return c.current, nil
}

// Served returns the certificate.
func (c *InMemory) Served() map[string]*x509.Certificate {
	certificate, err := c.GetCertificate(nil)
	if err != nil {
		return nil
	}
	return map[string]*x509.Certificate{"server": certificate.Leaf}
}

// Ready is a readiness check. It fails if there is no certificate.
func (c *InMemory) Ready(context.Context) error {
	_, err := c.GetCertificate(nil)
	return err
}
