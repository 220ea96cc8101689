package instancewriter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/gauge"

	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/slots"
)

type metrics struct {
	batch        batch.Metrics
	apiWrites    *prometheus.CounterVec
	reservations *prometheus.CounterVec

	deviceChanges *prometheus.CounterVec
	reportSeconds prometheus.Histogram

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
			Name: "akri_api_writes_total", Help: "Write requests to the API server, by kind (instance, status, event) and result (ok, conflict, error). An idle cluster adds none.",
		}, []string{"kind", "result"}),
		reservations: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_slot_reservations_total", Help: "ReserveSlots calls, by result: ok or a reason of the README.",
		}, []string{"result"}),
		deviceChanges: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_device_changes_total",
			Help: "Devices that the first node sees (added) or that no node sees any more (removed), by Configuration and change.",
		}, []string{"configuration", "change"}),
		reportSeconds: registered.NewHistogram(prometheus.HistogramOpts{
			Name: "akri_report_seconds", Help: "Time from receiving the report of a node until its Instances are written.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}),
		refusedCalls: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_refused_calls_total", Help: "Calls that were refused because of the identity or the number of calls of the caller, by reason (see docs/security.md).",
		}, []string{"reason"}),
		refusedConnections: registered.NewCounter(prometheus.CounterOpts{
			Name: "akri_refused_connections_total", Help: "Connections that were closed because their IP address had too many.",
		}),
	}
}

func instances(list func() []*akriv0.Instance) prometheus.Collector {
	help, labels := "Instances, by Configuration.", []string{"configuration", "is_shared"}
	return gauge.OnScrape("akri_instances", help, labels, func(count *prometheus.GaugeVec) {
		for _, instance := range list() {
			count.WithLabelValues(instance.Spec.ConfigurationName, strconv.FormatBool(instance.Spec.Shared)).Inc()
		}
	})
}

func slotCount(list func() []*akriv0.Instance) prometheus.Collector {
	help, labels := "Slots, by Configuration and state (free, used, malformed).", []string{"configuration", "state"}
	return gauge.OnScrape("akri_slots", help, labels, func(count *prometheus.GaugeVec) {
		for _, instance := range list() {
			for _, state := range []string{"free", "used", "malformed"} {
				count.WithLabelValues(instance.Spec.ConfigurationName, state) // exists at zero
			}
			for _, slot := range slots.List(instance) {
				count.WithLabelValues(instance.Spec.ConfigurationName, stateOf(slot)).Inc()
			}
		}
	})
}

func stateOf(slot slots.Slot) string {
	switch {
	case slot.Malformed != "":
		return "malformed"
	case slot.Free():
		return "free"
	default:
		return "used"
	}
}

func conditions(list func() []*akriv0.Configuration) prometheus.Collector {
	help := "1 for the present status (True, False, Unknown) and reason of each condition of a Configuration."
	labels := []string{"configuration_namespace", "configuration", "condition", "status", "reason"}
	return gauge.OnScrape("akri_configuration_condition", help, labels, func(present *prometheus.GaugeVec) {
		for _, configuration := range list() {
			for _, condition := range configuration.Status.Conditions {
				present.WithLabelValues(configuration.Namespace, configuration.Name, condition.Type, string(condition.Status), condition.Reason).Set(1)
			}
		}
	})
}

func reportingNodes(count func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "akri_reporting_nodes", Help: "Nodes with a report stream to any replica.",
	}, func() float64 { return float64(count()) })
}
