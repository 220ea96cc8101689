package console

import (
	"crypto/x509"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/kube/reviews"
	"akri.sh/libs/pki"
	"akri.sh/services/console/internal/session"
)

type metrics struct {
	logins  *prometheus.CounterVec
	reviews *prometheus.CounterVec
	// refusedConnections are those that were closed for others.
	refusedConnections prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) metrics {
	m := metrics{
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_console_logins_total",
			Help: "Logins, by result (accepted, refused, limited: not verified because of too many that were refused, error: the API server did not answer).",
		}, []string{"result"}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_console_reviews_total",
			Help: "TokenReviews and SubjectAccessReviews, by resource and result (ok, refused, error).",
		}, []string{"resource", "result"}),
		refusedConnections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_console_refused_connections_total",
			Help: "Connections to the pages that were closed because there were too many.",
		}),
	}
	registerer.MustRegister(m.logins, m.reviews, m.refusedConnections)
	for _, result := range []string{session.Accepted, session.Refused, session.Limited, session.Failed} {
		m.logins.WithLabelValues(result)
	}
	for _, labels := range reviews.Counted() {
		m.reviews.WithLabelValues(labels...)
	}
	return m
}

func certificateExpiry(certificate func() *x509.Certificate) prometheus.Collector {
	help := "Expiry of certificates in seconds since 1970 (console: of the pages)."
	return pki.Expiry(help, map[string]func() *x509.Certificate{"console": certificate})
}
