package brokercontroller_test

import (
	"testing"

	"akri.sh/libs/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	e := newWebhookEnv(t)
	e.serve()
	e.eventually(e.ready, "a certificate of the webhook")
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	metricstest.Check(t, e.metrics, "../../docs/metrics.md", "broker-controller")
}
