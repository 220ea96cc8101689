package opcua

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ questions *prometheus.CounterVec }

const (
	answered = "answered"
	failed   = "failed"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{questions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_opcua_questions_total", Help: "Questions to OPC UA servers about the servers that they know, by result.",
	}, []string{"result"})}
	for _, result := range []string{answered, failed} {
		m.questions.WithLabelValues(result)
	}
	registerer.MustRegister(m.questions)
	return m
}

func (m *metrics) asked(err error) {
	result := answered
	if err != nil {
		result = failed
	}
	m.questions.WithLabelValues(result).Inc()
}
