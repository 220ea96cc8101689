package inventory

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the inventory and of the events that it hears of.
type Metrics struct {
	looks *prometheus.HistogramVec
	lost  prometheus.Counter
}

const (
	full = "all"
	part = "part"
)

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{
		looks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "akri_udev_look_seconds", Help: "Time to look at devices of the kernel: all, or the part that an event is about.",
			Buckets: []float64{.0002, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}, []string{"of"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_udev_events_lost_total", Help: "Times that events did not fit into the socket's buffer, so that all devices were looked at.",
		}),
	}
	m.looks.WithLabelValues(full)
	m.looks.WithLabelValues(part)
	registerer.MustRegister(m.looks, m.lost)
	return m
}

// Lost counts a loss of events.
func (m *Metrics) Lost() { m.lost.Inc() }

func (m *Metrics) observe(devpath string, took time.Duration) {
	of := part
	if devpath == "" {
		of = full
	}
	m.looks.WithLabelValues(of).Observe(took.Seconds())
}
