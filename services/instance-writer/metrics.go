package instancewriter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/gauge"

	"akri.sh/services/instance-writer/internal/batch"
)

type metrics struct {
	batch        batch.Metrics
	apiWrites    *prometheus.CounterVec
	reservations *prometheus.CounterVec

	refusedCalls       *prometheus.CounterVec
	refusedConnections prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) metrics {
	registered := promauto.With(registerer)
	return metrics{
		batch: batch.Metrics{
			Seconds: registered.NewHistogram(prometheus.HistogramOpts{
				Name: "akri_instance_write_seconds", Help: "Duration of one write of an Instance.",
				Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .5, 1, 5},
			}),
			Batch: registered.NewHistogram(prometheus.HistogramOpts{
				Name: "akri_instance_batch_size", Help: "Number of edits in one write of an Instance.",
				Buckets: []float64{1, 2, 5, 10, 20, 50, 100},
			}),
			Conflicts: registered.NewCounter(prometheus.CounterOpts{
				Name: "akri_instance_conflicts_total",
				Help: "Writes of Instances that were retried after a conflict with another writer.",
			}),
		},
		apiWrites: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_api_writes_total", Help: "Write requests to the API server, by kind of object and result.",
		}, []string{"kind", "result"}),
		reservations: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_slot_reservations_total", Help: "ReserveSlots calls, by result.",
		}, []string{"result"}),
		refusedCalls: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_refused_calls_total", Help: "Calls that were refused because of the identity or the number of calls of the caller, by reason.",
		}, []string{"reason"}),
		refusedConnections: registered.NewCounter(prometheus.CounterOpts{
			Name: "akri_refused_connections_total", Help: "Connections that were closed because their IP address had too many.",
		}),
	}
}

func instanceCount(list func() []*akriv0.Instance) prometheus.Collector {
	labels := []string{"configuration", "is_shared"}
	return gauge.OnScrape("akri_instance_count", "Number of Instances.", labels, func(count *prometheus.GaugeVec) {
		for _, instance := range list() {
			count.WithLabelValues(instance.Spec.ConfigurationName, strconv.FormatBool(instance.Spec.Shared)).Inc()
		}
	})
}
