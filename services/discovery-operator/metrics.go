package operator

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var instanceCountDesc = prometheus.NewDesc("akri_instance_count",
	"Devices that this node sees, by Configuration.", []string{"configuration", "is_shared"}, nil)

// viewsCollector counts devices when it is asked: nothing can drift.
type viewsCollector struct{ views *views }

func (viewsCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- instanceCountDesc
}

func (c viewsCollector) Collect(collected chan<- prometheus.Metric) {
	type series struct {
		configuration string
		shared        bool
	}
	counts := map[series]float64{}
	all, _, _ := c.views.snapshot()
	for _, one := range all {
		for _, device := range one.Inventory.GetDevices() {
			counts[series{one.Inventory.GetName(), device.GetShared()}]++
		}
	}
	for s, count := range counts {
		collected <- prometheus.MustNewConstMetric(instanceCountDesc, prometheus.GaugeValue, count, s.configuration, strconv.FormatBool(s.shared))
	}
}
