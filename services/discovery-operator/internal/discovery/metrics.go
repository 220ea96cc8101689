package discovery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of discovery, under Akri's names.
type Metrics struct {
	seconds *prometheus.HistogramVec
	results *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(registerer prometheus.Registerer) Metrics {
	m := Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "akri_discovery_response_time", Help: "Seconds from the question to a Discovery Handler to its first list.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 1.5, 2, 3, 5, 10, 60},
		}, []string{"configuration"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_discovery_response_result", Help: "Answers of Discovery Handlers to questions, by result.",
		}, []string{"discovery_handler_name", "result"}),
	}
	registerer.MustRegister(m.seconds, m.results)
	return m
}

// Forget drops the series of a Configuration that is gone.
func (m Metrics) Forget(configuration string) { m.seconds.DeleteLabelValues(configuration) }

func (m Metrics) answered(query Query, after time.Duration) {
	m.seconds.WithLabelValues(query.Name).Observe(after.Seconds())
	m.results.WithLabelValues(query.Handler, "Success").Inc()
	m.results.WithLabelValues(query.Handler, "Fail").Add(0)
}

func (m Metrics) failed(query Query) {
	m.results.WithLabelValues(query.Handler, "Fail").Inc()
	m.results.WithLabelValues(query.Handler, "Success").Add(0)
}
