package console

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewRegistry()
	newMetrics(registry)
	registry.MustRegister(certificateExpiry(func() *x509.Certificate { return &x509.Certificate{NotAfter: time.Now()} }))
	metricstest.Check(t, registry, "../../docs/metrics.md", "console")
}
