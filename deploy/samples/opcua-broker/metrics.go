package opcuabroker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"akri.sh/deploy/samples/opcua-broker/internal/mqtt"
	"akri.sh/deploy/samples/opcua-broker/internal/opcua"
	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// counters are the metrics of events.
type counters struct {
	sessions *prometheus.CounterVec
	changes  *prometheus.CounterVec
	messages *prometheus.CounterVec
}

func newCounters(registerer prometheus.Registerer) *counters {
	factory := promauto.With(registerer)
	c := &counters{
		sessions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_opcua_session_attempts_total", Help: "Attempts to open a session with the OPC UA server.",
		}, []string{"result"}),
		changes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_opcua_changes_total", Help: "Changes of the value or status of a node.",
		}, []string{"node"}),
		messages: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_mqtt_messages_total", Help: "Values that were sent to the MQTT broker, or dropped.",
		}, []string{"result"}),
	}
	for _, result := range []string{"success", "failure"} {
		c.sessions.WithLabelValues(result)
	}
	for _, result := range mqtt.Results {
		c.messages.WithLabelValues(string(result))
	}
	return c
}

func (c *counters) attempted(err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	c.sessions.WithLabelValues(result).Inc()
}

func (c *counters) published(result mqtt.Result) {
	c.messages.WithLabelValues(string(result)).Inc()
}

func mqttConnected(publisher *mqtt.Publisher) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "akri_mqtt_connected", Help: "Whether there is a connection with the MQTT broker.",
	}, func() float64 { return flag(publisher.Connected()) })
}

var (
	connected = prometheus.NewDesc("akri_opcua_connected", "Whether the OPC UA server monitors at least one node.", nil, nil)
	latest    = prometheus.NewDesc("akri_opcua_value", "Value of a node that is a number or a boolean, absent while its quality is bad.", []string{"node"}, nil)
	quality   = prometheus.NewDesc("akri_opcua_quality", "1 for the quality of the value of a node, 0 for the others.", []string{"node", "quality"}, nil)
	timestamp = prometheus.NewDesc("akri_opcua_source_timestamp_seconds", "When the device measured the value of a node.", []string{"node"}, nil)
)

// collector exports the latest values.
type collector struct {
	store  *values.Store
	client *opcua.Client
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{connected, latest, quality, timestamp} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(description *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
	}
	gauge(connected, flag(c.client.Ready() == nil))
	for _, value := range c.store.All() {
		if number, ok := value.Number(); ok {
			gauge(latest, number, value.Name)
		}
		for _, one := range values.Qualities {
			gauge(quality, flag(value.Quality == one), value.Name, string(one))
		}
		if at := value.SourceTimestamp; at != nil {
			gauge(timestamp, float64(at.UnixNano())/float64(time.Second), value.Name)
		}
	}
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
