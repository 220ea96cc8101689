package webhook

import (
	"context"
	"net"

	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/pki"
)

// Serve serves the webhook on the listener, with the certificate in the data of a Secret.
func Serve(ctx context.Context, options Options, data map[string][]byte, listener net.Listener) error {
	certificate, err := pki.Load(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return err
	}

	w := &Webhook{Options: options}
	w.certificate.Store(certificate)
	return w.serve(ctx, listener)
}
