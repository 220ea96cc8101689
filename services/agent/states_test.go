package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/handler"
	"akri.sh/libs/kube"
	"akri.sh/libs/rpctest"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	debugecho "akri.sh/services/handler-debug-echo"
)

const shortGrace = 5 * time.Second

// startEcho starts handler-debug-echo outside the agent.
func (h *harness) startEcho() (stop func() error) {
	h.t.Helper()
	server, err := debugecho.New(debugecho.Config{
		Flags: handler.Flags{DiscoveryHandlersDirectory: h.directory}, InstancesShared: true, AvailabilityFile: h.path("availability"),
	}, env(h.t))
	require.NoError(h.t, err)
	stop = background(server.Run)
	h.t.Cleanup(func() { _ = stop() })
	return stop
}

// awaitStates waits until the registrar lists handlers with exactly these statuses.
func (h *harness) awaitStates(want ...registrarv1.HandlerStatus) {
	h.t.Helper()
	registrar := registrarv1.NewRegistrarServiceClient(rpctest.Dial(h.t, h.address("r")))
	require.Eventually(h.t, func() bool {
		table, err := registrar.ListHandlers(h.t.Context(), &registrarv1.ListHandlersRequest{})
		if err != nil || len(table.GetHandlers()) != len(want) {
			return false
		}
		for i, handler := range table.GetHandlers() {
			if handler.GetStatus() != want[i] {
				return false
			}
		}
		return true
	}, timeout, tick, "%v", want)
}

// A handler outside the agent passes through all states. Its device stays while the handler is
// offline, until the grace has ended.
func TestHandlerStates(t *testing.T) {
	const waiting, active, offline = registrarv1.HandlerStatus_HANDLER_STATUS_WAITING,
		registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE, registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
	h := newHarness(t, "")
	h.config.Registrar.KeepOffline, h.config.DiscoveryOperator.HandlerGrace = shortGrace, shortGrace
	h.startAgent()
	configurations, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	instances, err := kube.Instances(server.Config())
	require.NoError(t, err)
	create := func() {
		_, err := configurations.In("default").Create(t.Context(), &akriv0.Configuration{
			ObjectMeta: metav1.ObjectMeta{Name: "states", Namespace: "default"},
			Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{
				Name: "debugEcho", DiscoveryDetails: "descriptions: [foo0]",
			}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	remove := func() {
		require.NoError(t, configurations.In("default").Delete(t.Context(), "states", metav1.DeleteOptions{}))
	}
	exists := func() bool {
		_, err := instances.In("default").Get(t.Context(), "states-8120fe", metav1.GetOptions{})
		return err == nil
	}

	stop := h.startEcho()
	h.awaitStates(waiting)
	create()
	h.awaitStates(active)
	require.Eventually(t, exists, timeout, tick)
	require.NoError(t, stop())
	h.awaitStates(offline)
	remove()
	h.awaitStates(waiting)

	stop = h.startEcho()
	create()
	h.awaitStates(active)
	require.Eventually(t, exists, timeout, tick)
	require.NoError(t, stop())
	h.awaitStates(offline)
	require.True(t, exists(), "the device of an offline handler must stay")
	h.awaitStates()
	require.Eventually(t, func() bool { return !exists() }, timeout, tick)
	remove()
}
