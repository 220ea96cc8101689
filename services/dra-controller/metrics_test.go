package dracontroller

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube/resources"
	"akri.sh/libs/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewRegistry()
	newMetrics(registry)
	record, err := resources.NewRecord(&rest.Config{}, "default")
	require.NoError(t, err)
	registry.MustRegister(record.Existence())
	metricstest.Check(t, registry, "../../docs/metrics.md", "dra-controller")
}
