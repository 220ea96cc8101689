package operator

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/broadcast"
	"akri.sh/services/discovery-operator/internal/inventory"
)

var instanceCountDesc = prometheus.NewDesc("akri_instance_count",
	"Devices that this node sees, by Configuration.", []string{"configuration", "is_shared"}, nil)

// inventoryCollector counts the devices at each scrape.
type inventoryCollector struct {
	inventory *broadcast.Value[inventory.Snapshot]
}

func (inventoryCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- instanceCountDesc
}

func (c inventoryCollector) Collect(collected chan<- prometheus.Metric) {
	type series struct {
		configuration string
		shared        bool
	}
	counts := map[series]float64{}
	snapshot, _ := c.inventory.Get()
	for _, entry := range snapshot.Entries {
		for _, device := range entry.Devices.GetDevices() {
			counts[series{entry.Devices.GetName(), device.GetShared()}]++
		}
	}
	for s, count := range counts {
		collected <- prometheus.MustNewConstMetric(instanceCountDesc, prometheus.GaugeValue, count,
			s.configuration, strconv.FormatBool(s.shared))
	}
}
