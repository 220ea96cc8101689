package gauge_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/gauge"
)

func TestOnScrape(t *testing.T) {
	colors := []string{"red", "blue", "red"}
	registry := prometheus.NewRegistry()
	registry.MustRegister(gauge.OnScrape("things", "Things, by color.", []string{"color"}, func(count *prometheus.GaugeVec) {
		for _, color := range colors {
			count.WithLabelValues(color).Inc()
		}
	}))
	scrape := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Len(t, families, 1)
		require.Equal(t, "things", families[0].GetName())
		values := map[string]float64{}
		for _, metric := range families[0].GetMetric() {
			values[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
		return values
	}
	require.Equal(t, map[string]float64{"red": 2, "blue": 1}, scrape())

	colors = []string{"green"} // series without a value disappear
	require.Equal(t, map[string]float64{"green": 1}, scrape())
}
