package webhook

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/kube"
	"akri.sh/libs/pki"
)

// changeCertificate makes the server use the certificate of the Secret. It returns when to call it
// again, and whether the server uses the certificate.
//
// API servers get a changed registration later than it is written. So a replica changes to a
// certificate of another CA when the registration has had that CA for SettleTime. The leader
// changes after two of them, because it then removes the CA certificates that are not in the
// Secret.
func (w *Webhook) changeCertificate(secret *corev1.Secret, registered []byte) (after time.Duration, settled bool, err error) {
	next, err := pki.Load(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return 0, false, fmt.Errorf("secret %q: %w", w.Secret, err)
	}
	served := w.certificate.Load()
	if served != nil && served.Leaf.Equal(next.Leaf) {
		return kube.MaxWait, true, nil
	}
	if served != nil && w.verify(served, registered) == nil {
		if remaining := w.untilTrusted(next, registered); remaining > 0 {
			return remaining, false, nil
		}
	}
	w.certificate.Store(next)
	w.role.CompareAndSwap(leader, takingOver)
	w.Log.Info("certificate of the webhook changed", zap.Time("expires_at", next.Leaf.NotAfter))
	return kube.MaxWait, true, nil
}

// untilTrusted returns how long to wait until all API servers accept a certificate.
func (w *Webhook) untilTrusted(next *pki.KeyPair, registered []byte) time.Duration {
	if w.verify(next, w.trusted) != nil {
		if w.verify(next, registered) != nil {
			return kube.MaxWait // the registration triggers the next reconciliation
		}
		w.trusted, w.trustedSince = registered, time.Now()
	}
	settle := w.SettleTime
	if w.role.Load() != standby {
		settle *= 2
	}
	return settle - time.Since(w.trustedSince)
}
