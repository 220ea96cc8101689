package registrar

import (
	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/gauge"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/registrar/internal/registry"
)

type metrics struct{ accepted, refused prometheus.Counter }

func newMetrics(registerer prometheus.Registerer, store *registry.Store) metrics {
	registrations := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "akri_registrations_total", Help: "Registrations of Discovery Handlers, by result (accepted, refused).",
	}, []string{"result"})
	registerer.MustRegister(registrations, handlerCount(store))
	return metrics{accepted: registrations.WithLabelValues("accepted"), refused: registrations.WithLabelValues("refused")}
}

func handlerCount(store *registry.Store) prometheus.Collector {
	help, labels := "Registered endpoints of Discovery Handlers, by handler and status (Waiting, Active, Offline).", []string{"name", "status"}
	return gauge.OnScrape("akri_discovery_handlers", help, labels, func(count *prometheus.GaugeVec) {
		handlers, _ := store.Handlers()
		for _, handler := range handlers {
			for _, status := range []registrarv1.HandlerStatus{registry.Waiting, registry.Active, registry.Offline} {
				count.WithLabelValues(handler.Name, registry.StatusName(status)) // exists at zero
			}
			count.WithLabelValues(handler.Name, registry.StatusName(handler.Status)).Inc()
		}
	})
}
