package discovery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of discovery. Their names are those of upstream Akri.
type Metrics struct {
	seconds *prometheus.HistogramVec
	results *prometheus.CounterVec
	// withoutNames leaves the label configuration empty.
	withoutNames bool
}

// NewMetrics returns registered metrics.
func NewMetrics(registerer prometheus.Registerer, withoutNames bool) Metrics {
	m := Metrics{
		withoutNames: withoutNames,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "akri_discovery_response_time", Help: "Seconds from a Discover request to the first list of devices.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 1.5, 2, 3, 5, 10, 60},
		}, []string{"configuration"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_discovery_response_result", Help: "Discover requests, by Discovery Handler and result (Success, Fail).",
		}, []string{"discovery_handler_name", "result"}),
	}
	registerer.MustRegister(m.seconds, m.results)
	return m
}

// Delete removes the series of a Configuration.
func (m Metrics) Delete(configuration string) { m.seconds.DeleteLabelValues(configuration) }

func (m Metrics) succeeded(query Query, after time.Duration) {
	configuration := query.Name
	if m.withoutNames {
		configuration = ""
	}
	m.seconds.WithLabelValues(configuration).Observe(after.Seconds())
	m.results.WithLabelValues(query.Handler, "Success").Inc()
	m.results.WithLabelValues(query.Handler, "Fail").Add(0)
}

func (m Metrics) failed(query Query) {
	m.results.WithLabelValues(query.Handler, "Fail").Inc()
	m.results.WithLabelValues(query.Handler, "Success").Add(0)
}
