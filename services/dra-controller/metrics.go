package dracontroller

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	writes  *prometheus.CounterVec
	leading prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_dra_controller_writes_total",
			Help: "Writes to the API server. The result is ok or error.",
		}, []string{"kind", "verb", "result"}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_dra_controller_leading",
			Help: "1 if this process is the leader, else 0.",
		}),
	}
	registerer.MustRegister(m.writes, m.leading)
	for _, result := range []string{"ok", "error"} {
		for _, kind := range []string{"DeviceClass", "ResourceSlice"} {
			for _, verb := range []string{"create", "update", "delete"} {
				m.writes.WithLabelValues(kind, verb, result)
			}
		}
		m.writes.WithLabelValues("Pod", "patch", result)
	}
	return m
}

func (m *metrics) written(kind, verb string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.writes.WithLabelValues(kind, verb, result).Inc()
}
