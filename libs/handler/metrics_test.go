package handler

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewRegistry()
	newMetrics("lamp", registry)
	metricstest.Check(t, registry, "../../docs/metrics.md", "Every Discovery Handler")
}
