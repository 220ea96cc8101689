package console

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/pki"
)

// lifetime is short enough for browsers, which refuse certificates of more than 398 days.
const lifetime = 90 * 24 * time.Hour

// newCertificate returns the certificate of the directory, or else one that the console makes.
func newCertificate(config Config, log *zap.Logger) pki.Source {
	if config.TLS.Dir != "" {
		return pki.Dir(config.TLS.Dir)
	}
	service := config.TLS.Service
	return inMemory(pki.Issuer{
		Name:      "akri console",
		DNSNames:  []string{service, service + "." + config.Namespace, service + "." + config.Namespace + ".svc", "localhost"},
		Lifetimes: pki.Lifetimes{CA: lifetime, Server: lifetime},
	}, log)
}

// inMemory returns a certificate of a CA that others do not trust. Its key never leaves the
// process, and the next process makes another.
func inMemory(issuer pki.Issuer, log *zap.Logger) pki.Source {
	var mu sync.Mutex
	var current *pki.KeyPair
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if current != nil && pki.Fresh(current.Leaf, now) { // it is valid for as long as its CA
			return &current.Certificate, nil
		}

		authority, _, err := issuer.RenewCA(now, pki.Authority{}, false)
		if err != nil {
			return nil, err
		}
		server, err := issuer.RenewServer(now, nil, authority.Signer)
		if err != nil {
			return nil, err
		}
		current = server
		digest := sha256.Sum256(server.Leaf.Raw)
		log.Info("certificate created; compare its SHA-256 fingerprint with that in the browser",
			zap.String("fingerprint", hex.EncodeToString(digest[:])), zap.Time("expires", server.Leaf.NotAfter))
		return &server.Certificate, nil
	}
}
