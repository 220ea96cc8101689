package operator

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/gauge"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// deviceCount counts devices by Configuration, or those of all Configurations together.
func deviceCount(devices *broadcast.Value[inventory.Snapshot], withoutNames bool) prometheus.Collector {
	help, labels := "Devices that this node sees, by Configuration.", []string{"configuration", "is_shared"}
	return gauge.OnScrape("akri_instance_count", help, labels, func(count *prometheus.GaugeVec) {
		snapshot, _ := devices.Get()
		for _, entry := range snapshot.Entries {
			configuration := entry.Report.GetConfiguration()
			if withoutNames {
				configuration = ""
			}
			for _, device := range entry.Report.GetDevices() {
				count.WithLabelValues(configuration, strconv.FormatBool(device.GetShared())).Inc()
			}
		}
	})
}
