package allocator

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewRegistry()
	newMetrics(registry)
	metricstest.Check(t, registry, "../../docs/metrics.md", "config-plugin-allocator")
}
