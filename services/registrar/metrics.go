package registrar

import (
	"github.com/prometheus/client_golang/prometheus"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/registrar/internal/registry"
)

type metrics struct{ accepted, refused prometheus.Counter }

func newMetrics(registerer prometheus.Registerer, store *registry.Store) metrics {
	registrations := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_registrations_total", Help: "Registrations of Discovery Handlers, by result.",
	}, []string{"result"})
	registerer.MustRegister(registrations, tableCollector{store})
	return metrics{accepted: registrations.WithLabelValues("accepted"), refused: registrations.WithLabelValues("refused")}
}

var handlersDesc = prometheus.NewDesc("akri_discovery_handlers",
	"Registered endpoints of Discovery Handlers, by handler and status.", []string{"name", "status"}, nil)

// tableCollector counts the handlers in the table at each scrape.
type tableCollector struct{ store *registry.Store }

func (tableCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- handlersDesc }

func (c tableCollector) Collect(collected chan<- prometheus.Metric) {
	type series struct {
		name   string
		status registrarv1.HandlerStatus
	}
	counts := map[series]float64{}
	handlers, _ := c.store.Handlers()
	for _, handler := range handlers {
		for _, status := range []registrarv1.HandlerStatus{registry.Waiting, registry.Active, registry.Offline} {
			counts[series{handler.Name, status}] += 0
		}
		counts[series{handler.Name, handler.Status}]++
	}
	for s, count := range counts {
		collected <- prometheus.MustNewConstMetric(handlersDesc, prometheus.GaugeValue, count, s.name, registry.StatusName(s.status))
	}
}
