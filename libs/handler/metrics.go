package handler

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	streams       prometheus.Gauge
	lists         prometheus.Counter
	registrations *prometheus.CounterVec
}

const (
	accepted = "accepted"
	failed   = "failed"
)

// newMetrics adds the label handler to all metrics, because a process may run several handlers.
func newMetrics(name string, registerer prometheus.Registerer) *metrics {
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_handler_streams", Help: "Open Discover streams, one per Configuration.",
		}),
		lists: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_handler_lists_sent_total", Help: "Device lists sent. Repeated lists are not sent.",
		}),
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_handler_registrations_total", Help: "Attempts to register with the registrar, by result (accepted, failed).",
		}, []string{"result"}),
	}
	for _, result := range []string{accepted, failed} {
		m.registrations.WithLabelValues(result)
	}
	prometheus.WrapRegistererWith(prometheus.Labels{"handler": name}, registerer).
		MustRegister(m.streams, m.lists, m.registrations)
	return m
}
