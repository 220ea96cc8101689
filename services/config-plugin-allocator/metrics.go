package allocator

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/services/config-plugin-allocator/internal/policy"
)

type metrics struct {
	allocations *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_virtual_allocations_total",
		Help: "Requests to map virtual devices to slots, by result (granted, exhausted, invalid).",
	}, []string{"result"})}
	registerer.MustRegister(m.allocations)
	for _, result := range []string{"granted", "exhausted", "invalid"} {
		m.allocations.WithLabelValues(result)
	}
	return m
}

func (m *metrics) allocated(err error) {
	result := "invalid"
	switch {
	case err == nil:
		result = "granted"
	case errors.Is(err, policy.ErrExhausted):
		result = "exhausted"
	}
	m.allocations.WithLabelValues(result).Inc()
}
