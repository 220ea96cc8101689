package slots

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the slots of device plugins that were released and lost.
type Metrics struct{ reclaimed, lost *prometheus.CounterVec }

// NewMetrics returns registered Metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{
		reclaimed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_reclaimed_slots_total",
			Help: "Slots that were released because no pod used them, by reason " +
				"(idle: a pod used the slot before, unconfirmed: no pod was seen to use it).",
		}, []string{"reason"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_lost_slots_total",
			Help: "Slots that a pod uses and this node does not hold, by result " +
				"(taken_back, taken: recorded for another holder, unknown: the slot of a virtual device is unknown).",
		}, []string{"result"}),
	}
	registerer.MustRegister(m.reclaimed, m.lost)
	m.Add(Result{})
	return m
}

// Add adds the result of a reconciliation.
func (m *Metrics) Add(result Result) {
	m.reclaimed.WithLabelValues("idle").Add(float64(result.Idle))
	m.reclaimed.WithLabelValues("unconfirmed").Add(float64(result.Unconfirmed))
	m.lost.WithLabelValues("taken_back").Add(float64(result.TakenBack))
	m.lost.WithLabelValues("taken").Add(float64(result.Taken))
	m.lost.WithLabelValues("unknown").Add(float64(result.Unknown))
}
