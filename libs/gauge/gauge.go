// Package gauge has gauges that are computed at each scrape.
package gauge

import "github.com/prometheus/client_golang/prometheus"

type collector struct {
	options prometheus.GaugeOpts
	labels  []string
	compute func(*prometheus.GaugeVec)
}

// OnScrape returns the collector of a gauge. At each scrape compute sets the values of a new gauge,
// so that series without a value disappear. Scrapes may run concurrently.
func OnScrape(name, help string, labels []string, compute func(*prometheus.GaugeVec)) prometheus.Collector {
	return collector{prometheus.GaugeOpts{Name: name, Help: help}, labels, compute}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.NewGaugeVec(c.options, c.labels).Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(collected chan<- prometheus.Metric) {
	gauge := prometheus.NewGaugeVec(c.options, c.labels)
	c.compute(gauge)
	gauge.Collect(collected)
}
