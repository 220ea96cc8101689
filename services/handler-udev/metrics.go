package udev

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label of.
const (
	allDevices = "all"
	partOfTree = "part"
)

type metrics struct {
	devices       prometheus.Gauge
	listings      *prometheus.HistogramVec
	lost          prometheus.Counter
	uninitialized prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		devices: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_udev_devices", Help: "Devices of the kernel that rules were last matched with.",
		}),
		listings: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "akri_udev_look_seconds",
			Help:    "Time to list devices and match rules (all: all devices, part: those that an event is about).",
			Buckets: []float64{.0002, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}, []string{"of"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_udev_events_lost_total",
			Help: "Losses of events because a buffer was full. Each is followed by a resync.",
		}),
		uninitialized: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_udev_uninitialized_devices_total",
			Help: "Devices that udevd did not initialize in 10 seconds. They are listed without properties of udev.",
		}),
	}
	m.listings.WithLabelValues(allDevices)
	m.listings.WithLabelValues(partOfTree)
	registerer.MustRegister(m.devices, m.listings, m.lost, m.uninitialized)
	return m
}

// observe implements discovery.Observe.
func (m *metrics) observe(top string, devices int, took time.Duration) {
	of := partOfTree
	if top == "" {
		of = allDevices
		m.devices.Set(float64(devices))
	}
	m.listings.WithLabelValues(of).Observe(took.Seconds())
}
