package devicepluginhost

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/node/slots"
)

// metrics implements plugin.Metrics.
type metrics struct {
	allocations     *prometheus.CounterVec
	allocateSeconds *prometheus.HistogramVec
	devicePlugins   prometheus.Gauge
	slots           *slots.Metrics
	registrations   *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		slots: slots.NewMetrics(registerer),
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_allocations_total",
			Help: "Allocate calls of the kubelet, by level (instance, configuration) and result (granted, refused, failed).",
		}, []string{"level", "result"}),
		allocateSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "akri_allocate_seconds",
			Help:    "Duration of the kubelet's Allocate calls, by level.",
			Buckets: []float64{.001, .002, .004, .007, .01, .02, .05, .1, .5, 1, 2, 8},
		}, []string{"level"}),
		devicePlugins: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_device_plugins", Help: "Running device plugins: one for each extended resource.",
		}),
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_kubelet_registrations_total",
			Help: "Registrations of device plugins with the kubelet, by result (success, failure).",
		}, []string{"result"}),
	}
	registerer.MustRegister(m.allocations, m.allocateSeconds, m.devicePlugins, m.registrations)
	for _, level := range []string{"instance", "configuration"} {
		m.allocateSeconds.WithLabelValues(level)
		for _, result := range []string{"granted", "refused", "failed"} {
			m.allocations.WithLabelValues(level, result)
		}
	}
	m.registrations.WithLabelValues("success")
	m.registrations.WithLabelValues("failure")
	return m
}

// SetDevicePlugins implements plugin.Metrics.
func (m *metrics) SetDevicePlugins(count int) { m.devicePlugins.Set(float64(count)) }

// Allocated implements plugin.Metrics.
func (m *metrics) Allocated(level string, err error, duration time.Duration) {
	m.allocations.WithLabelValues(level, allocationResult(err)).Inc()
	m.allocateSeconds.WithLabelValues(level).Observe(duration.Seconds())
}

// allocationResult distinguishes a request that cannot be granted from a failure.
func allocationResult(err error) string {
	switch status.Code(err) {
	case codes.OK:
		return "granted"
	case codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.OutOfRange, codes.ResourceExhausted:
		return "refused"
	default:
		return "failed"
	}
}

// Registered implements plugin.Metrics.
func (m *metrics) Registered(err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.registrations.WithLabelValues(result).Inc()
}
