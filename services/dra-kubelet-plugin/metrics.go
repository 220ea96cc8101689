package drakubeletplugin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/node/slots"
)

// metrics implements claims.Metrics.
type metrics struct {
	prepares       *prometheus.CounterVec
	prepareSeconds prometheus.Histogram
	claims         prometheus.Gauge
	releasedSlots  prometheus.Counter
	lostSlots      *prometheus.CounterVec
	// devicePluginSlots counts slots of Pods that got devices from device plugins.
	devicePluginSlots *slots.Metrics
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		devicePluginSlots: slots.NewMetrics(registerer),
		prepares: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_dra_prepares_total",
			Help: "Preparations of ResourceClaims, by result (prepared, refused, failed).",
		}, []string{"result"}),
		prepareSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "akri_dra_prepare_seconds",
			Help:    "Duration of the preparations of ResourceClaims.",
			Buckets: []float64{.001, .002, .004, .007, .01, .02, .05, .1, .5, 1, 2, 10, 20},
		}),
		claims: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_dra_prepared_claims", Help: "ResourceClaims that are prepared on this node.",
		}),
		releasedSlots: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_dra_released_slots_total",
			Help: "Slots that were released because no ResourceClaim that is prepared on this node used them.",
		}),
		lostSlots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_dra_lost_slots_total",
			Help: "Slots of prepared ResourceClaims that this node did not hold, by result (taken_back, taken: recorded for another holder).",
		}, []string{"result"}),
	}
	registerer.MustRegister(m.prepares, m.prepareSeconds, m.claims, m.releasedSlots, m.lostSlots)
	for _, result := range []string{"prepared", "refused", "failed"} {
		m.prepares.WithLabelValues(result)
	}
	m.Lost(0, 0)
	return m
}

func (m *metrics) preparedClaim(err error, duration time.Duration) {
	result := "failed"
	switch status.Code(err) {
	case codes.OK:
		result = "prepared"
	case codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.OutOfRange:
		result = "refused"
	}
	m.prepares.WithLabelValues(result).Inc()
	m.prepareSeconds.Observe(duration.Seconds())
}

// SetPrepared implements claims.Metrics.
func (m *metrics) SetPrepared(claims int) { m.claims.Set(float64(claims)) }

// Released implements claims.Metrics.
func (m *metrics) Released(slots int) { m.releasedSlots.Add(float64(slots)) }

// Lost implements claims.Metrics.
func (m *metrics) Lost(takenBack, taken int) {
	m.lostSlots.WithLabelValues("taken_back").Add(float64(takenBack))
	m.lostSlots.WithLabelValues("taken").Add(float64(taken))
}
