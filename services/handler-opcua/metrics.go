package opcua

import "github.com/prometheus/client_golang/prometheus"

// Values of the label result.
const (
	answered = "answered"
	failed   = "failed"
)

type metrics struct{ requests *prometheus.CounterVec }

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_opcua_questions_total",
		Help: "FindServers requests to OPC UA servers, by result (answered, failed).",
	}, []string{"result"})}
	for _, result := range []string{answered, failed} {
		m.requests.WithLabelValues(result)
	}
	registerer.MustRegister(m.requests)
	return m
}

// observe counts the result of a request.
func (m *metrics) observe(err error) {
	result := answered
	if err != nil {
		result = failed
	}
	m.requests.WithLabelValues(result).Inc()
}
