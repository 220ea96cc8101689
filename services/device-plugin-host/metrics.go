package devicepluginhost

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/services/device-plugin-host/internal/slots"
)

type metrics struct {
	allocations   *prometheus.CounterVec
	allocateTime  *prometheus.HistogramVec
	running       prometheus.Gauge
	reclaimed     prometheus.Counter
	lost          *prometheus.CounterVec
	registrations *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_allocations_total",
			Help: "Allocate calls of the kubelet, by level (instance, configuration) and result (granted, refused, failed).",
		}, []string{"level", "result"}),
		allocateTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "akri_allocate_seconds",
			Help:    "Time to answer an Allocate call of the kubelet, by level.",
			Buckets: []float64{.001, .002, .004, .007, .01, .02, .05, .1, .5, 1, 2, 8},
		}, []string{"level"}),
		running:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "akri_device_plugins", Help: "Resources that are offered to the kubelet."}),
		reclaimed: prometheus.NewCounter(prometheus.CounterOpts{Name: "akri_reclaimed_slots_total", Help: "Slots that were released because no pod used them."}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_lost_slots_total",
			Help: "Slots that a pod uses and this node did not hold, by result (taken_back, taken: somebody else holds it, unknown: its slot is not known).",
		}, []string{"result"}),
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_kubelet_registrations_total", Help: "Registrations of device plugins with the kubelet, by result (success, failure).",
		}, []string{"result"}),
	}
	registerer.MustRegister(m.allocations, m.allocateTime, m.running, m.reclaimed, m.lost, m.registrations)
	for _, level := range []string{"instance", "configuration"} {
		for _, result := range []string{"granted", "refused", "failed"} {
			m.allocations.WithLabelValues(level, result)
		}
	}
	for _, result := range []string{"taken_back", "taken", "unknown"} {
		m.lost.WithLabelValues(result)
	}
	m.registrations.WithLabelValues("success")
	m.registrations.WithLabelValues("failure")
	return m
}

// Allocated counts an Allocate call.
func (m *metrics) Allocated(level string, err error, took time.Duration) {
	m.allocations.WithLabelValues(level, resultOf(err)).Inc()
	m.allocateTime.WithLabelValues(level).Observe(took.Seconds())
}

// resultOf tells a request that cannot be granted from one that ran into trouble.
func resultOf(err error) string {
	switch status.Code(err) {
	case codes.OK:
		return "granted"
	case codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.OutOfRange, codes.ResourceExhausted:
		return "refused"
	default:
		return "failed"
	}
}

// Registered counts a registration.
func (m *metrics) Registered(err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.registrations.WithLabelValues(result).Inc()
}

func (m *metrics) settled(done slots.Outcome) {
	m.reclaimed.Add(float64(done.Released))
	m.lost.WithLabelValues("taken_back").Add(float64(done.TakenBack))
	m.lost.WithLabelValues("taken").Add(float64(done.Taken))
	m.lost.WithLabelValues("unknown").Add(float64(done.Unknown))
}

func (m *metrics) plugins(count int) { m.running.Set(float64(count)) }
