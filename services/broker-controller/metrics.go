package brokercontroller

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/controller"
	"akri.sh/services/broker-controller/internal/render"
)

type metrics struct {
	writes  *prometheus.CounterVec
	leading prometheus.Gauge
	reviews *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer, cache cluster.Cache) *metrics {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_broker_writes_total",
			Help: "Writes to the API server. The result is ok, refused (the API server rejected the object) or error.",
		}, []string{"kind", "verb", "result"}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_broker_controller_leading",
			Help: "1 if this process is the leader, else 0.",
		}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_broker_controller_reviews_total",
			Help: "Configurations that the webhook reviewed. The result is allowed or refused.",
		}, []string{"result"}),
	}
	m.reviews.WithLabelValues("allowed")
	m.reviews.WithLabelValues("refused")
	for _, kind := range []string{"Pod", "Job", "Service"} {
		for _, verb := range []string{"create", "delete"} {
			for _, result := range []string{"ok", "refused", "error"} {
				m.writes.WithLabelValues(kind, verb, result)
			}
		}
	}
	registerer.MustRegister(m.writes, m.leading, m.reviews, brokerPods{cache})
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

var brokerPodCount = prometheus.NewDesc("akri_broker_pod_count",
	"Broker Pods that have neither failed nor succeeded.", []string{"configuration", "node"}, nil)

// brokerPods counts the Pods of the cache at each scrape, so the number is correct after a restart.
type brokerPods struct{ cache cluster.Cache }

// Describe implements prometheus.Collector.
func (brokerPods) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- brokerPodCount }

// Collect implements prometheus.Collector.
func (b brokerPods) Collect(metrics chan<- prometheus.Metric) {
	type labels struct{ configuration, node string }
	counts := map[labels]int{}
	for _, pod := range b.cache.Pods.List() {
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		node := pod.Labels[render.LabelTargetNode]
		if node == "" { // Pods of Jobs run on the node that the scheduler selects
			node = pod.Spec.NodeName
		}
		counts[labels{pod.Labels[render.LabelConfiguration], node}]++
	}
	for l, count := range counts {
		metrics <- prometheus.MustNewConstMetric(brokerPodCount, prometheus.GaugeValue, float64(count), l.configuration, l.node)
	}
}
