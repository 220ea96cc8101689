package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/metricstest"
	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	operator "akri.sh/services/discovery-operator"
)

const (
	waiting = registrarv1.HandlerStatus_HANDLER_STATUS_WAITING
	active  = registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE
	offline = registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
)

// startHandler starts and registers a handler named foo.
func startHandler(t *testing.T, h *harness, details string, ids ...string) (handler *fakeHandler, stop func()) {
	t.Helper()
	return startNamed(t, h, "foo", details, ids...)
}

func startNamed(t *testing.T, h *harness, name, details string, ids ...string) (handler *fakeHandler, stop func()) {
	t.Helper()
	handler = newHandler(t)
	handler.respond(details, answer{ids: ids})
	stop = handler.serve(t)
	h.registrar.add(name, handler.endpoint, true)
	return handler, stop
}

func TestMetricsAreDocumented(t *testing.T) {
	h := newHarness(t, forever)
	startHandler(t, h, "d", "x")
	h.start()
	h.reported(h.apply(h.namespace, "metrics", "foo", "d"), true, "x")
	metricstest.Check(t, h.metrics, "../../docs/metrics.md", "discovery-operator")
}

// With MetricsWithoutNames no metric contains the name of a Configuration, and the devices of all
// are counted together.
func TestMetricsWithoutNames(t *testing.T) {
	for _, without := range []bool{false, true} {
		h := newHarness(t, forever)
		h.config.MetricsWithoutNames = without
		startHandler(t, h, "d", "x", "y")
		h.start()
		first, second := h.apply("east", "hidden-one", "foo", "d"), h.apply("west", "hidden-two", "foo", "d")
		h.reported(first, true, "x", "y")
		h.reported(second, true, "x", "y")
		families, err := h.metrics.Gather()
		require.NoError(t, err)
		require.Equal(t, !without, strings.Contains(fmt.Sprint(families), "hidden"))
		if without {
			require.NoError(t, testutil.GatherAndCompare(h.metrics, strings.NewReader(
				"# HELP akri_instance_count Devices that this node sees, by Configuration.\n# TYPE akri_instance_count gauge\n"+
					"akri_instance_count{configuration=\"\",is_shared=\"true\"} 4\n"), "akri_instance_count"))
		}
	}
}

// A registered handler is used when a Configuration is created and waits after it is deleted.
func TestHandlerBeforeConfiguration(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "before", "foo", "d")
	report := h.reported(key, true, "x")
	require.Equal(t, node, report.GetNode())
	require.NotEmpty(t, report.GetConfigurationUid())
	require.Equal(t, "before-"+akriv0.Digest("x", "", true), report.GetDevices()[0].GetInstance())
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == active }, "active")

	h.remove(key)
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == waiting }, "waiting")
	h.eventually(func() bool { return handler.openStreams() == 0 }, "the stream to be closed")
}

// A Configuration without handler has a problem until the handler registers.
func TestConfigurationBeforeHandler(t *testing.T) {
	h := newHarness(t, forever)
	h.start()
	h.registrar.add("debugEcho", "/nowhere", true)
	key := h.apply(h.namespace, "after", "foo", "d")
	require.Equal(t, `no Discovery Handler named "foo" is registered on node "node-a"; registered: debugEcho`,
		h.problem(key, akriv0.ReasonHandlerNotRegistered).GetMessage())
	h.reported(key, false)
	startHandler(t, h, "d", "x")
	require.Empty(t, h.reported(key, true, "x").GetProblems())
}

// Without a handler, the list is complete and empty only after the grace.
func TestIncompleteWithinGrace(t *testing.T) {
	h := newHarness(t, 100*time.Millisecond)
	h.start()
	key := h.apply(h.namespace, "grace", "foo", "d")
	h.reported(key, true)
	require.False(t, h.writer.reportsOf(key)[0].GetComplete())
}

// No device leaves while a handler restarts.
func TestDevicesSurviveHandlerRestart(t *testing.T) {
	h := newHarness(t, forever)
	handler, kill := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "dies", "foo", "d")
	h.reported(key, true, "x")
	kill()
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == offline }, "offline")
	h.problem(key, akriv0.ReasonHandlerOffline)
	report := h.reported(key, true, "x")
	require.Equal(t, "Offline", report.GetHandlers()[0].GetStatus())
	require.NotNil(t, report.GetHandlers()[0].GetOfflineSince())

	handler.serve(t)
	h.registrar.add("foo", handler.endpoint, true)
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == active && handler.openStreams() == 1 }, "active after the restart")
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
		return len(reports[len(reports)-1].GetProblems()) == 0
	}, "no problems")
	h.neverGone(key, "x")
}

// Each report causes work in the cluster, so the report of a handler that stays absent does not
// change.
func TestReportOfAbsentHandlerIsStable(t *testing.T) {
	h := newHarness(t, forever)
	_, kill := startHandler(t, h, "d", "x")
	h.start()
	h.registrar.add("debugEcho", "/nowhere", true)
	gone, missing := h.apply(h.namespace, "gone", "foo", "d"), h.apply(h.namespace, "missing", "bar", "d")
	h.reported(gone, true, "x")
	kill()
	wait := h.problem(gone, akriv0.ReasonHandlerOffline).GetWait()
	require.Equal(t, h.reported(gone, true, "x").GetHandlers()[0].GetOfflineSince(), wait.GetSince())
	require.Equal(t, forever, wait.GetUntil().AsTime().Sub(wait.GetSince().AsTime()))
	wait = h.problem(missing, akriv0.ReasonHandlerNotRegistered).GetWait()
	require.Equal(t, forever, wait.GetUntil().AsTime().Sub(wait.GetSince().AsTime()))

	reports := len(h.writer.reportsOf(gone)) + len(h.writer.reportsOf(missing))
	for i := range 3 {
		h.registrar.add("debugEcho", "/nowhere", true) // reconciles all Configurations
		h.reported(h.apply(h.namespace, fmt.Sprint("zz-later-", i), "debugEcho", "d"), false)
	}
	require.Equal(t, reports, len(h.writer.reportsOf(gone))+len(h.writer.reportsOf(missing)))
}

func TestDevicesChange(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "changes", "foo", "d")
	h.reported(key, true, "x")
	handler.respond("d", answer{ids: []string{"x", "y", ""}})
	h.reported(key, true, "x", "y")
	require.Contains(t, h.problem(key, akriv0.ReasonInvalidDevice).GetMessage(), `"foo" at `+handler.endpoint+" sent a device with an empty id")
	handler.respond("d", answer{})
	require.Empty(t, h.reported(key, true).GetProblems())
}

// The devices of all endpoints are merged. The list is complete after all endpoints have answered.
func TestSeveralEndpoints(t *testing.T) {
	h := newHarness(t, forever)
	fast, _ := startHandler(t, h, "d", "x", "both")
	slow, _ := startHandler(t, h, "d")
	slow.respond("d", answer{silent: true})
	h.start()
	key := h.apply(h.namespace, "union", "foo", "d")
	h.reported(key, false, "x", "both")
	slow.respond("d", answer{ids: []string{"both", "y"}})
	h.reported(key, true, "x", "both", "y")

	// The deletion of a Configuration closes its streams at both endpoints, and no others.
	both := func(streams int, status registrarv1.HandlerStatus) func() bool {
		has := func(handler *fakeHandler) bool {
			return handler.openStreams() == streams && h.registrar.status(handler.endpoint) == status
		}
		return func() bool { return has(fast) && has(slow) }
	}
	other := h.apply(h.namespace, "other", "foo", "d")
	h.eventually(both(2, active), "streams of both Configurations")
	h.remove(key)
	h.eventually(both(1, active), "streams of the other Configuration")
	fast.respond("d", answer{ids: []string{"x"}})
	slow.respond("d", answer{ids: []string{"y"}})
	h.reported(other, true, "x", "y")
	require.True(t, both(1, active)(), "the handlers must stay Active")
	require.Len(t, slices.Concat(fast.received(), slow.received()), 4, "no stream was opened again")
	h.remove(other)
	h.eventually(both(0, waiting), "the end of all streams")
}

// The message of the handler is reported unchanged. Other Configurations are not affected.
func TestInvalidDetails(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "good", "x")
	handler.respond("bad", answer{err: status.Error(codes.InvalidArgument, "line 3: unknown key \"udevRule\"")})
	h.start()
	good := h.apply(h.namespace, "good", "foo", "good")
	h.reported(good, true, "x")
	h.edit(good, func(request *configurationv1.DiscoveryRequest) { request.Details = "bad" })
	other := h.apply(h.namespace, "other", "foo", "good")
	require.Equal(t, "line 3: unknown key \"udevRule\"", h.problem(good, akriv0.ReasonInvalidDetails).GetMessage())
	h.reported(good, false, "x")
	h.reported(other, true, "x")
	h.edit(good, func(request *configurationv1.DiscoveryRequest) { request.Details = "good" })
	require.Empty(t, h.reported(good, true, "x").GetProblems())
}

// A new registration ends the delay after InvalidDetails.
func TestRegistrationRetriesInvalidDetails(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d")
	handler.respond("d", answer{err: status.Error(codes.InvalidArgument, "not yet")})
	h.start()
	key := h.apply(h.namespace, "again", "foo", "d")
	h.problem(key, akriv0.ReasonInvalidDetails)
	handler.respond("d", answer{ids: []string{"x"}})
	require.Len(t, handler.received(), 1, "the same request would get the same answer")
	h.registrar.add("foo", handler.endpoint, true)
	require.Empty(t, h.reported(key, true, "x").GetProblems())
}

func TestDiscoverFailed(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d")
	handler.respond("d", answer{err: status.Error(codes.Internal, "bus error")})
	h.start()
	key := h.apply(h.namespace, "fails", "foo", "d")
	require.Contains(t, h.problem(key, akriv0.ReasonDiscoverFailed).GetMessage(), "bus error")
	handler.respond("d", answer{ids: []string{"x"}})
	require.Empty(t, h.reported(key, true, "x").GetProblems())
}

// The devices stay until the handler answers the new details.
func TestEditedConfigurationKeepsDevices(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "one", "x", "y")
	handler.respond("two", answer{silent: true})
	h.start()
	key := h.apply(h.namespace, "edited", "foo", "one")
	h.reported(key, true, "x", "y")
	h.edit(key, func(request *configurationv1.DiscoveryRequest) { request.Details = "two" })
	h.reported(key, false, "x", "y")
	handler.respond("two", answer{ids: []string{"y", "z"}})
	h.reported(key, true, "y", "z")
	h.neverGone(key, "y")

	before := len(handler.received())
	h.edit(key, func(request *configurationv1.DiscoveryRequest) {
		request.BrokerProperties = map[string]string{"MINE": "1"}
	})
	h.eventually(func() bool {
		return h.reported(key, true, "y", "z").GetDevices()[0].GetProperties()["MINE"] == "1"
	}, "the changed property")
	require.Len(t, handler.received(), before, "a change of brokerProperties needs no new request")
}

// After a restart, the list is incomplete until all handlers have answered.
func TestRestart(t *testing.T) {
	h := newHarness(t, forever)
	handler, kill := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "restart", "foo", "d")
	h.reported(key, true, "x")
	kill()
	h.stop()
	h.writer.forget()
	h.start()
	h.reported(key, false)
	handler.serve(t)
	h.reported(key, true, "x")
	h.neverGone(key, "x")
}

// The devices of a handler leave when it has been unreachable for the grace.
func TestRemovedHandler(t *testing.T) {
	h := newHarness(t, 200*time.Millisecond)
	handler, kill := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "gone", "foo", "d")
	h.reported(key, true, "x")
	kill()
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == offline }, "offline")
	h.registrar.clear()
	h.reported(key, true)
	h.problem(key, akriv0.ReasonHandlerNotRegistered)
}

// A registrar that loses its table does not remove the devices of handlers that can be reached.
func TestRegistrarLosesTable(t *testing.T) {
	// The grace is longer than the handler takes to send its first list on a busy machine.
	h := newHarness(t, time.Second)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "table", "foo", "d")
	h.reported(key, true, "x")
	h.registrar.clear()
	handler.respond("d", answer{ids: []string{"x", "y"}})
	h.reported(key, true, "x", "y")
	// When another Configuration is complete, the grace has ended.
	h.reported(h.apply(h.namespace, "other", "bar", "d"), true)
	h.neverGone(key, "x")
	h.registrar.add("foo", handler.endpoint, true)
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == active }, "active")
	require.Equal(t, 1, handler.openStreams())
}

// A Configuration whose name is taken has a problem and no devices, until it gets the name.
func TestNameTaken(t *testing.T) {
	h := newHarness(t, forever)
	startHandler(t, h, "d", "x")
	h.start()
	key := h.apply("z", "twin", "foo", "d")
	h.reported(key, true, "x")
	take := func(taken bool) {
		h.writer.configurations.update(key, func(c *configurationv1.Configuration) { c.NameTaken = taken })
	}
	take(true)
	require.Contains(t, h.problem(key, akriv0.ReasonNameTaken).GetMessage(), "the name belongs to another")
	h.reported(key, true)
	take(false)
	require.Empty(t, h.reported(key, true, "x").GetProblems())
}

// The node stops discovering for a Configuration that no longer allows it, and reports no device.
func TestNodeNotAllowed(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply("n", "elsewhere", "foo", "d")
	h.reported(key, true, "x")
	allow := func(allowed bool) {
		h.writer.configurations.update(key, func(c *configurationv1.Configuration) { c.NodeNotAllowed = !allowed })
	}
	allow(false)
	require.Empty(t, h.reported(key, true).GetProblems())
	h.eventually(func() bool { return handler.openStreams() == 0 }, "no Discover stream")
	allow(true)
	require.Empty(t, h.reported(key, true, "x").GetProblems())
}

// The node is served without the instance-writer. A new stream starts with the newest state.
func TestInstanceWriterDown(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.config.InstanceWriter = "unix://" + t.TempDir() + "/h.sock"
	stop := rpctest.ServeAt(t, h.config.InstanceWriter, h.writer.register)
	h.start()
	key := h.apply(h.namespace, "alone", "foo", "d")
	h.reported(key, true, "x")
	stop()
	h.writer.forget()
	inventory := func(ids int) {
		h.awaitInventory(func(response *discoveryv1.WatchDevicesResponse) bool {
			for _, configuration := range response.GetConfigurations() {
				if configuration.GetNamespace()+"/"+configuration.GetName() == key {
					return configuration.GetComplete() && len(configuration.GetDevices()) == ids
				}
			}
			return false
		})
	}
	inventory(1)
	handler.respond("d", answer{ids: []string{"x", "y"}})
	inventory(2)

	stop = rpctest.ServeAt(t, h.config.InstanceWriter, h.writer.register)
	h.reported(key, true, "x", "y")
	require.Len(t, h.writer.reportsOf(key), 1, "only the newest state is reported")
	stop()
	h.writer.forget()
	rpctest.ServeAt(t, h.config.InstanceWriter, h.writer.register)
	h.reported(key, true, "x", "y")
	require.Len(t, h.writer.reportsOf(key), 1, "each entry is reported once")
}

// After a start, nothing is served before the Configurations have been received.
func TestStartWithoutInstanceWriter(t *testing.T) {
	h := newHarness(t, forever)
	startHandler(t, h, "d", "x")
	key := h.apply(h.namespace, "waits", "foo", "d")
	h.config.InstanceWriter = "unix://" + t.TempDir() + "/h.sock"
	h.start()
	watch := h.watchDevices()
	first := make(chan *discoveryv1.WatchDevicesResponse, 1)
	go func() {
		response, _ := watch.Recv()
		first <- response
	}()
	require.ErrorContains(t, h.health.Ready(t.Context()), "no Configurations received from the instance-writer yet")
	rpctest.ServeAt(t, h.config.InstanceWriter, h.writer.register)
	configuration := (<-first).GetConfigurations()[0]
	require.Equal(t, key, configuration.GetNamespace()+"/"+configuration.GetName())
	h.reported(key, true, "x")
	require.NoError(t, h.health.Ready(t.Context()))
}

// Configurations that change while the instance-writer is away are received afterwards. The node
// sends the revision that it has seen.
func TestConfigurationsAfterReconnect(t *testing.T) {
	h := newHarness(t, forever)
	startHandler(t, h, "d", "x")
	h.config.InstanceWriter = "unix://" + t.TempDir() + "/h.sock"
	stop := rpctest.ServeAt(t, h.config.InstanceWriter, h.writer.register)
	h.start()
	removed, edited := h.apply(h.namespace, "removed", "foo", "d"), h.apply(h.namespace, "edited", "foo", "d")
	h.reported(removed, true, "x")
	h.reported(edited, true, "x")
	stop()
	h.remove(removed)
	h.edit(edited, func(request *configurationv1.DiscoveryRequest) { request.Details = "nothing" })
	added := h.apply(h.namespace, "added", "foo", "d")
	before := len(h.writer.configurations.received())
	h.writer.forget()
	rpctest.ServeAt(t, h.config.InstanceWriter, h.writer.register)
	h.reported(added, true, "x")
	h.reported(edited, true)
	requests := h.writer.configurations.received()
	require.EqualValues(t, 2, requests[before].GetRevision())
	require.Equal(t, []string{"foo"}, requests[before].GetHandlers())
	h.awaitInventory(func(response *discoveryv1.WatchDevicesResponse) bool {
		return len(response.GetConfigurations()) == 2 // without the removed Configuration
	})
}

// Closed streams are reopened without warnings and without losing a change.
func TestInstanceWriterClosesStreams(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.config.InstanceWriter = "unix://" + t.TempDir() + "/h.sock"
	h.writer.refusals = []*instancev1.Refusal{{Instance: "ended-8120fe", Reason: akriv0.ReasonDigestCollision}}
	rpctest.ServeAt(t, h.config.InstanceWriter, h.writer.register, rpc.Replicated(100*time.Millisecond))
	h.start()
	key := h.apply(h.namespace, "ended", "foo", "d")
	h.reported(key, true, "x")
	first := func() int {
		count := 0
		for _, report := range h.writer.reportsOf(key) {
			if report.GetRevision() == 1 {
				count++
			}
		}
		return count
	}
	h.eventually(func() bool { return first() >= 3 }, "the third stream")
	handler.respond("d", answer{ids: []string{"x", "y"}})
	h.reported(key, true, "x", "y")
	h.eventually(func() bool { return first() >= 5 }, "the fifth stream")
	require.Len(t, h.warnings.All(), 1, "the refusal is logged once")
}

// A Configuration that is created again gets a new log message for the same refusal.
func TestRefusalOfRecreatedConfiguration(t *testing.T) {
	h := newHarness(t, forever)
	startHandler(t, h, "d", "x")
	h.writer.refusals = []*instancev1.Refusal{{Instance: "again-8120fe", Reason: akriv0.ReasonDigestCollision}}
	h.start()
	key := h.apply(h.namespace, "again", "foo", "d")
	logged := func(count int) {
		h.eventually(func() bool { return h.warnings.FilterField(zap.String("configuration", key)).Len() == count }, "the refusal in the log")
	}
	logged(1)
	h.remove(key)
	h.awaitInventory(func(response *discoveryv1.WatchDevicesResponse) bool { return len(response.GetConfigurations()) == 0 })
	h.reported(h.apply(h.namespace, "other", "foo", "d"), true, "x") // a report after the removal
	h.apply(h.namespace, "again", "foo", "d")
	logged(2)
}

// The next report of a Configuration waits for the response to the last one.
func TestOneReportInFlight(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "window", "foo", "d")
	h.reported(key, true, "x")
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == active }, "active")
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
		return reports[len(reports)-1].GetHandlers()[0].GetStatus() == "Active"
	}, "the status in the report")
	h.writer.paused.Set(true)
	h.writer.forget()
	handler.respond("d", answer{ids: []string{"a"}})
	h.reported(key, true, "a")
	handler.respond("d", answer{ids: []string{"a", "b"}})
	handler.respond("d", answer{ids: []string{"a", "b", "c"}})
	h.awaitInventory(func(response *discoveryv1.WatchDevicesResponse) bool {
		return len(response.GetConfigurations()[0].GetDevices()) == 3
	})
	require.Len(t, h.writer.reportsOf(key), 1)
	h.writer.paused.Set(false)
	h.reported(key, true, "a", "b", "c")
	require.Len(t, h.writer.reportsOf(key), 2)
}

func TestNewReportsAllProblems(t *testing.T) {
	_, err := operator.New(operator.Config{}, service.Env{})
	require.ErrorContains(t, err, "--node-name")
	require.ErrorContains(t, err, "--handler-grace")
	require.ErrorContains(t, err, "--max-devices")
}

// A replica of instance-writer without memory refuses the streams. The service reaches another one.
func TestFullReplica(t *testing.T) {
	h := newHarness(t, forever)
	startHandler(t, h, "d", "x")
	h.config.InstanceWriter = "unix://" + t.TempDir() + "/h.sock"
	rpctest.ServeReplicas(t, h.config.InstanceWriter, h.writer.register)
	h.start()

	h.reported(h.apply(h.namespace, "full", "foo", "d"), true, "x")
}
