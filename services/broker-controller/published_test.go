package brokercontroller_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	brokercontroller "akri.sh/services/broker-controller"
)

func publicationTimeout(timeout time.Duration) func(*brokercontroller.Config) {
	return func(config *brokercontroller.Config) { config.PublicationTimeout = timeout }
}

// publish creates the DeviceClass as dra-controller does.
func (e *testEnv) publish(name string) {
	e.Helper()
	classes := e.clientset.ResourceV1().DeviceClasses()
	_, err := classes.Create(e.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(e, err)
	e.Cleanup(func() {
		require.NoError(e, classes.Delete(context.WithoutCancel(e.Context()), name, metav1.DeleteOptions{}))
	})
}

// Brokers of a new Instance are created when its DeviceClass exists.
func TestBrokersAwaitPublication(t *testing.T) {
	e := newTestEnv(t)
	e.publish(akriv0.Driver)
	e.start(publicationTimeout(time.Hour))
	e.instance(e.configuration("pods", podsOnly), "8120fe", 1, "node-a")
	e.instance(e.configuration("jobs", oneJob), "8120fe", 1, "node-a")
	e.publish(akriv0.DeviceClassName("later-8120fe"))
	e.waitForConfigurations()
	require.Empty(t, e.podNames())
	require.Empty(t, e.jobNames())

	e.publish(akriv0.DeviceClassName("pods-8120fe"))
	e.eventuallyNames(e.podNames, "pods-8120fe-pod")
	require.Empty(t, e.jobNames())
	e.publish(akriv0.DeviceClassName("jobs-8120fe"))
	e.eventuallyNames(e.jobNames, "jobs-8120fe-1-job")
}

// Brokers do not wait if no devices are published, nor forever: a dra-controller that does not run
// must not keep the devices of device plugins from their brokers.
func TestBrokersWithoutPublication(t *testing.T) {
	for name, c := range map[string]struct {
		classes []string
		timeout time.Duration
	}{
		"no device is published": {nil, time.Hour},
		"dra-controller is away": {[]string{akriv0.Driver}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			for _, class := range c.classes {
				e.publish(class)
			}
			e.start(publicationTimeout(c.timeout))
			e.instance(e.configuration("pods", podsOnly), "8120fe", 1, "node-a")
			e.instance(e.configuration("jobs", oneJob), "8120fe", 1, "node-a")
			e.eventuallyNames(e.podNames, "pods-8120fe-pod")
			e.eventuallyNames(e.jobNames, "jobs-8120fe-1-job")
		})
	}
}
