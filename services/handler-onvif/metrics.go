package onvif

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/discovery"
)

type metrics struct {
	discovery.Metrics
	requests *prometheus.CounterVec
}

const (
	answered     = "answered"
	unauthorized = "unauthorized"
	failed       = "failed"
)

func newMetrics(registerer prometheus.Registerer) metrics {
	m := metrics{
		Metrics: discovery.Metrics{
			Cameras: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: "akri_onvif_cameras", Help: "Cameras that answer, before filters.",
			}),
			Probes: prometheus.NewCounter(prometheus.CounterOpts{
				Name: "akri_onvif_probes_total", Help: "Probes sent. A probe on all interfaces counts once.",
			}),
			Datagrams: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "akri_onvif_datagrams_total", Help: "Datagrams received, by result.",
			}, []string{"result"}),
		},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_onvif_requests_total", Help: "Requests to device services, by operation and result (answered, unauthorized, failed).",
		}, []string{"operation", "result"}),
	}
	for _, result := range discovery.DatagramResults {
		m.Datagrams.WithLabelValues(result)
	}
	for _, operation := range []onvif.Operation{onvif.GetSystemDateAndTime, onvif.GetNetworkInterfaces, onvif.GetDeviceInformation} {
		for _, result := range []string{answered, unauthorized, failed} {
			m.requests.WithLabelValues(string(operation), result)
		}
	}
	registerer.MustRegister(m.Cameras, m.Probes, m.Datagrams, m.requests)
	return m
}

func (m metrics) countRequest(operation onvif.Operation, err error) {
	result := answered
	switch {
	case errors.Is(err, onvif.ErrNotAuthorized):
		result = unauthorized
	case err != nil:
		result = failed
	}
	m.requests.WithLabelValues(string(operation), result).Inc()
}
