package instancewriter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/services/instance-writer/internal/editor"
)

type metrics struct {
	editor       editor.Metrics
	writes       *prometheus.CounterVec
	reservations *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) metrics {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "akri_instance_write_seconds", Help: "Time of one write of an Instance.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .5, 1, 5},
	})
	batch := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "akri_instance_batch_size", Help: "Edits that shared one write of an Instance.", Buckets: []float64{1, 2, 5, 10, 20, 50, 100},
	})
	conflicts := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "akri_instance_conflicts_total", Help: "Writes of an Instance that another writer was faster with, and that were repeated.",
	})
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_api_writes_total", Help: "Write requests to the API server, by kind of object and result.",
	}, []string{"kind", "result"})
	reservations := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_slot_reservations_total", Help: "ReserveSlots calls, by result.",
	}, []string{"result"})
	registerer.MustRegister(seconds, batch, conflicts, writes, reservations)
	return metrics{editor.Metrics{Seconds: seconds, Batch: batch, Conflicts: conflicts}, writes, reservations}
}

var instanceCount = prometheus.NewDesc("akri_instance_count", "Instances there are.", []string{"configuration", "is_shared"}, nil)

// counter counts the Instances when it is asked, so that it cannot drift.
type counter struct{ list func() []*akriv0.Instance }

// Describe implements prometheus.Collector.
func (c counter) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- instanceCount }

// Collect implements prometheus.Collector.
func (c counter) Collect(collected chan<- prometheus.Metric) {
	type labels struct {
		configuration string
		shared        bool
	}
	counts := map[labels]int{}
	for _, instance := range c.list() {
		counts[labels{instance.Spec.ConfigurationName, instance.Spec.Shared}]++
	}
	for of, count := range counts {
		collected <- prometheus.MustNewConstMetric(instanceCount, prometheus.GaugeValue, float64(count), of.configuration, strconv.FormatBool(of.shared))
	}
}
