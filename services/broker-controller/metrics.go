package brokercontroller

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/gauge"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/controller"
	"akri.sh/services/broker-controller/internal/render"
)

type metrics struct {
	writes  *prometheus.CounterVec
	leading prometheus.Gauge
	reviews *prometheus.CounterVec
	// refusedConnections are those to the webhook.
	refusedConnections prometheus.Counter
	// verdicts are those of the leader.
	verdicts *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer, cache cluster.Cache) *metrics {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_broker_writes_total",
			Help: "Writes to the API server, by kind, verb and result (ok, refused: the API server rejected the object, error).",
		}, []string{"kind", "verb", "result"}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_broker_controller_leading",
			Help: "1 if this process is the leader, else 0.",
		}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_broker_controller_reviews_total",
			Help: "Configurations that the webhook reviewed, by result (allowed, refused).",
		}, []string{"result"}),
		refusedConnections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_broker_controller_refused_connections_total",
			Help: "Connections to the webhook that were closed because their IP address had too many.",
		}),
	}
	m.verdicts = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "akri_verdicts",
		Help: "Devices and brokers of Configurations, and other subjects (device, broker, node, service, handler), by state. " +
			"Only the leader counts them.",
	}, []string{"subject", "state"})
	m.reviews.WithLabelValues("allowed")
	m.reviews.WithLabelValues("refused")
	for _, result := range []string{"ok", "error"} {
		m.writes.WithLabelValues("Configuration", "apply", result)
		m.writes.WithLabelValues("ValidatingAdmissionPolicy", "update", result)
	}
	for kind, verbs := range map[string][]string{
		"Pod": {"create", "delete"}, "Job": {"create", "delete"}, "Service": {"create", "update", "delete"},
	} {
		for _, verb := range verbs {
			for _, result := range []string{"ok", "refused", "error"} {
				m.writes.WithLabelValues(kind, verb, result)
			}
		}
	}
	registerer.MustRegister(m.writes, m.leading, m.reviews, m.refusedConnections, m.verdicts, brokerPodCount(cache))
	return m
}

func (m *metrics) written(kind, verb string, err error) {
	result := "ok"
	switch {
	case controller.Refused(err):
		result = "refused"
	case err != nil:
		result = "error"
	}
	m.writes.WithLabelValues(kind, verb, result).Inc()
}

func (m *metrics) reviewed(allowed bool) {
	result := "refused"
	if allowed {
		result = "allowed"
	}
	m.reviews.WithLabelValues(result).Inc()
}

// brokerPodCount counts the Pods of the cache, so the number is correct after a restart.
func brokerPodCount(cache cluster.Cache) prometheus.Collector {
	help, labels := "Broker Pods that have neither failed nor succeeded, by Configuration and node.", []string{"configuration", "node"}
	return gauge.OnScrape("akri_broker_pod_count", help, labels, func(count *prometheus.GaugeVec) {
		for _, pod := range cache.Pods.List() {
			if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
				continue
			}
			// Pods of Jobs run on the node that the scheduler selects.
			node := cmp.Or(pod.Labels[render.LabelTargetNode], pod.Spec.NodeName)
			count.WithLabelValues(pod.Labels[render.LabelConfiguration], node).Inc()
		}
	})
}
