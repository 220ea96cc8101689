package onvif

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/services/handler-onvif/internal/soap"
)

type metrics struct {
	cameras   prometheus.Gauge
	probes    prometheus.Counter
	datagrams *prometheus.CounterVec
	requests  *prometheus.CounterVec
}

const (
	heard     = "heard"
	ignored   = "ignored"
	malformed = "malformed"

	answered     = "answered"
	unauthorized = "unauthorized"
	failed       = "failed"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		cameras: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_onvif_cameras", Help: "Cameras that answer, before filters.",
		}),
		probes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_onvif_probes_total", Help: "Probes sent; one is sent on all interfaces.",
		}),
		datagrams: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_onvif_datagrams_total", Help: "Datagrams received, by what became of them.",
		}, []string{"result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_onvif_requests_total", Help: "Questions to device services, by what they asked and how they ended.",
		}, []string{"operation", "result"}),
	}
	for _, result := range []string{heard, ignored, malformed} {
		m.datagrams.WithLabelValues(result)
	}
	for _, operation := range soap.Operations {
		for _, result := range []string{answered, unauthorized, failed} {
			m.requests.WithLabelValues(string(operation), result)
		}
	}
	registerer.MustRegister(m.cameras, m.probes, m.datagrams, m.requests)
	return m
}

func (m *metrics) answered(operation soap.Operation, err error) {
	result := answered
	switch {
	case errors.Is(err, soap.ErrNotAuthorized):
		result = unauthorized
	case err != nil:
		result = failed
	}
	m.requests.WithLabelValues(string(operation), result).Inc()
}
