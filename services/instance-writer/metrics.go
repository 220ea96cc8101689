package instancewriter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/services/instance-writer/internal/batch"
)

type metrics struct {
	batch        batch.Metrics
	apiWrites    *prometheus.CounterVec
	reservations *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) metrics {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "akri_instance_write_seconds", Help: "Duration of one write of an Instance.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .5, 1, 5},
	})
	size := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "akri_instance_batch_size", Help: "Number of edits in one write of an Instance.",
		Buckets: []float64{1, 2, 5, 10, 20, 50, 100},
	})
	conflicts := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "akri_instance_conflicts_total",
		Help: "Writes of Instances that were retried after a conflict with another writer.",
	})
	apiWrites := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_api_writes_total", Help: "Write requests to the API server, by kind of object and result.",
	}, []string{"kind", "result"})
	reservations := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_slot_reservations_total", Help: "ReserveSlots calls, by result.",
	}, []string{"result"})
	registerer.MustRegister(seconds, size, conflicts, apiWrites, reservations)
	return metrics{batch.Metrics{Seconds: seconds, Batch: size, Conflicts: conflicts}, apiWrites, reservations}
}

var instanceCount = prometheus.NewDesc("akri_instance_count", "Number of Instances.", []string{"configuration", "is_shared"}, nil)

// instanceCollector counts the Instances at each scrape.
type instanceCollector struct{ list func() []*akriv0.Instance }

// Describe implements prometheus.Collector.
func (c instanceCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- instanceCount
}

// Collect implements prometheus.Collector.
func (c instanceCollector) Collect(collected chan<- prometheus.Metric) {
	type labels struct {
		configuration string
		shared        bool
	}
	counts := map[labels]int{}
	for _, instance := range c.list() {
		counts[labels{instance.Spec.ConfigurationName, instance.Spec.Shared}]++
	}
	for labels, count := range counts {
		collected <- prometheus.MustNewConstMetric(instanceCount, prometheus.GaugeValue, float64(count),
			labels.configuration, strconv.FormatBool(labels.shared))
	}
}
