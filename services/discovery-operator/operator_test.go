package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
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

// serving is a handler named foo that is registered and answers.
func serving(t *testing.T, w *world, details string, ids ...string) (handler *fakeHandler, stop func()) {
	t.Helper()
	handler = newHandler(t)
	handler.says(details, answer{ids: ids})
	stop = handler.serve(t)
	w.registrar.add("foo", handler.endpoint, true)
	return handler, stop
}

func TestAHandlerRegisteredBeforeItsConfigurationIsUsedAtOnceAndWaitsAgainAfterIt(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "before", "foo", "d")
	report := w.reported(key, true, "x")
	require.Equal(t, node, report.GetNode())
	require.NotEmpty(t, report.GetConfigurationUid())
	require.Equal(t, "before-"+akriv0.Digest("x", "", true), report.GetDevices()[0].GetInstance())
	w.eventually(func() bool { return w.registrar.status(handler.endpoint) == active }, "active")

	w.remove(key)
	w.eventually(func() bool { return w.registrar.status(handler.endpoint) == waiting }, "waiting")
	w.eventually(func() bool { return handler.streams(0) == 0 }, "stream closed")
}

func TestAConfigurationAppliedBeforeItsHandlerWaitsAndSaysSo(t *testing.T) {
	w := newWorld(t, forever)
	w.start()
	w.registrar.add("debugEcho", "/nowhere", true)
	key := w.apply(w.namespace, "after", "foo", "d")
	require.Equal(t, `no Discovery Handler named "foo" is registered on node "node-a"; registered: debugEcho`,
		w.problem(key, akriv0.ReasonHandlerNotRegistered).GetMessage())
	w.reported(key, false)
	serving(t, w, "d", "x")
	require.Empty(t, w.reported(key, true, "x").GetProblems())
}

func TestWithoutAHandlerTheListIsEmptyOnlyAfterTheGrace(t *testing.T) {
	w := newWorld(t, 100*time.Millisecond)
	w.start()
	key := w.apply(w.namespace, "grace", "foo", "d")
	w.reported(key, true)
	require.False(t, w.writer.of(key)[0].GetComplete())
}

func TestNothingLeavesWhenAHandlerDiesAndNothingChangesWhenItReturns(t *testing.T) {
	w := newWorld(t, forever)
	handler, kill := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "dies", "foo", "d")
	w.reported(key, true, "x")
	kill()
	w.eventually(func() bool { return w.registrar.status(handler.endpoint) == offline }, "offline")
	w.problem(key, akriv0.ReasonHandlerOffline)
	report := w.reported(key, true, "x")
	require.Equal(t, "Offline", report.GetHandlers()[0].GetStatus())
	require.NotNil(t, report.GetHandlers()[0].GetOfflineSince())

	handler.serve(t)
	w.registrar.add("foo", handler.endpoint, true)
	w.eventually(func() bool { return w.registrar.status(handler.endpoint) == active && handler.streams(0) == 1 }, "active again")
	w.eventually(func() bool { reports := w.writer.of(key); return len(reports[len(reports)-1].GetProblems()) == 0 }, "well again")
	w.neverGone(key, "x")
}

func TestDevicesComeAndGoAsTheHandlerSays(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "changes", "foo", "d")
	w.reported(key, true, "x")
	handler.says("d", answer{ids: []string{"x", "y", ""}})
	w.reported(key, true, "x", "y")
	require.Contains(t, w.problem(key, akriv0.ReasonInvalidDevice).GetMessage(), `"foo" at `+handler.endpoint+" sent a device with an empty id")
	handler.says("d", answer{})
	require.Empty(t, w.reported(key, true).GetProblems())
}

func TestTheUnionOfAllEndpointsIsCompleteWhenAllHaveSpoken(t *testing.T) {
	w := newWorld(t, forever)
	serving(t, w, "d", "x", "both")
	slow, _ := serving(t, w, "d")
	slow.says("d", answer{silent: true})
	w.start()
	key := w.apply(w.namespace, "union", "foo", "d")
	w.reported(key, false, "x", "both")
	slow.says("d", answer{ids: []string{"both", "y"}})
	w.reported(key, true, "x", "both", "y")
}

func TestRefusedDetailsAreReportedVerbatimAndTouchNothingElse(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "good", "x")
	handler.says("bad", answer{err: status.Error(codes.InvalidArgument, "line 3: unknown key \"udevRule\"")})
	w.start()
	good := w.apply(w.namespace, "good", "foo", "good")
	w.reported(good, true, "x")
	w.edit(good, func(spec *akriv0.ConfigurationSpec) { spec.DiscoveryHandler.DiscoveryDetails = "bad" })
	other := w.apply(w.namespace, "other", "foo", "good")
	require.Equal(t, "line 3: unknown key \"udevRule\"", w.problem(good, akriv0.ReasonInvalidDetails).GetMessage())
	w.reported(good, false, "x")
	w.reported(other, true, "x")
	w.edit(good, func(spec *akriv0.ConfigurationSpec) { spec.DiscoveryHandler.DiscoveryDetails = "good" })
	require.Empty(t, w.reported(good, true, "x").GetProblems())
}

func TestARefusedQuestionIsAskedAgainWhenTheHandlerRegistersAnew(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d")
	handler.says("d", answer{err: status.Error(codes.InvalidArgument, "not yet")})
	w.start()
	key := w.apply(w.namespace, "anew", "foo", "d")
	w.problem(key, akriv0.ReasonInvalidDetails)
	handler.says("d", answer{ids: []string{"x"}})
	require.Len(t, handler.asked(), 1, "the same question would have the same answer")
	w.registrar.add("foo", handler.endpoint, true)
	require.Empty(t, w.reported(key, true, "x").GetProblems())
}

func TestOtherFailuresAreReportedAndTriedAgain(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d")
	handler.says("d", answer{err: status.Error(codes.Internal, "bus is on fire")})
	w.start()
	key := w.apply(w.namespace, "fails", "foo", "d")
	require.Contains(t, w.problem(key, akriv0.ReasonDiscoverFailed).GetMessage(), "bus is on fire")
	handler.says("d", answer{ids: []string{"x"}})
	require.Empty(t, w.reported(key, true, "x").GetProblems())
}

func TestAnEditIsDiscoveredInPlace(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "one", "x", "y")
	handler.says("two", answer{silent: true})
	w.start()
	key := w.apply(w.namespace, "edited", "foo", "one")
	w.reported(key, true, "x", "y")
	w.edit(key, func(spec *akriv0.ConfigurationSpec) { spec.DiscoveryHandler.DiscoveryDetails = "two" })
	w.reported(key, false, "x", "y")
	handler.says("two", answer{ids: []string{"y", "z"}})
	w.reported(key, true, "y", "z")
	w.neverGone(key, "y")

	before := len(handler.asked())
	w.edit(key, func(spec *akriv0.ConfigurationSpec) { spec.BrokerProperties = map[string]string{"MINE": "1"} })
	w.eventually(func() bool {
		return w.reported(key, true, "y", "z").GetDevices()[0].GetProperties()["MINE"] == "1"
	}, "overlay")
	require.Len(t, handler.asked(), before, "the handler has no part in brokerProperties")
}

func TestARestartedOperatorIsIncompleteUntilItHasHeardAll(t *testing.T) {
	w := newWorld(t, forever)
	handler, kill := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "restart", "foo", "d")
	w.reported(key, true, "x")
	kill()
	w.stop()
	w.writer.forget()
	w.start()
	w.reported(key, false)
	handler.serve(t)
	w.reported(key, true, "x")
	w.neverGone(key, "x")
}

func TestAHandlerThatIsGoneForGoodTakesItsDevicesAlong(t *testing.T) {
	w := newWorld(t, 200*time.Millisecond)
	handler, kill := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "gone", "foo", "d")
	w.reported(key, true, "x")
	kill()
	w.eventually(func() bool { return w.registrar.status(handler.endpoint) == offline }, "offline")
	w.registrar.clear()
	w.reported(key, true)
	w.problem(key, akriv0.ReasonHandlerNotRegistered)
}

func TestARegistrarThatLosesItsTableCostsNoDevices(t *testing.T) {
	w := newWorld(t, 50*time.Millisecond)
	handler, _ := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "table", "foo", "d")
	w.reported(key, true, "x")
	w.registrar.clear()
	handler.says("d", answer{ids: []string{"x", "y"}})
	w.reported(key, true, "x", "y")
	// One more Configuration has been through the grace by the time that it is complete.
	w.reported(w.apply(w.namespace, "nobody", "bar", "d"), true)
	w.neverGone(key, "x")
	w.registrar.add("foo", handler.endpoint, true)
	w.eventually(func() bool { return w.registrar.status(handler.endpoint) == active }, "active")
	require.Equal(t, 1, handler.streams(0))
}

func TestTheOlderOfTwoConfigurationsOfOneNameHasIt(t *testing.T) {
	w := newWorld(t, forever)
	serving(t, w, "d", "x")
	w.start()
	// Creation times have seconds; equal ones are decided by the namespace, whose random end must then be the higher.
	first, second := w.namespace, w.newNamespace()
	if second < first {
		first, second = second, first
	}
	owner := w.apply(first, "twin", "foo", "d")
	w.reported(owner, true, "x")
	other := w.apply(second, "twin", "foo", "d")
	require.Contains(t, w.problem(other, akriv0.ReasonNameTaken).GetMessage(), "the older Configuration "+owner)
	w.reported(other, true)
	w.remove(owner)
	require.Empty(t, w.reported(other, true, "x").GetProblems())
}

func TestPropertiesComeFromSecretsAndAMissingOneIsNamed(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.start()
	value := "plain"
	key := w.apply(w.namespace, "properties", "foo", "d",
		akriv0.DiscoveryProperty{Name: "plain", Value: &value},
		akriv0.DiscoveryProperty{Name: "unset"},
		akriv0.DiscoveryProperty{Name: "secret", ValueFrom: &akriv0.PropertySource{SecretKeyRef: &akriv0.KeyRef{Name: "s", Key: "k"}}})
	require.Equal(t, `discoveryProperty "secret": Secret `+w.namespace+`/s not found`, w.problem(key, akriv0.ReasonPropertyNotFound).GetMessage())
	require.Empty(t, handler.asked())

	w.secret("s", "hidden")
	require.Empty(t, w.reported(key, true, "x").GetProblems())
	got := handler.asked()[0].GetDiscoveryProperties()
	require.Equal(t, "plain", string(got["plain"].GetVec()))
	require.Equal(t, "hidden", string(got["secret"].GetVec()))
	require.Contains(t, got, "unset")
	require.Nil(t, got["unset"].Vec)
}

func TestTheNodeIsToldWithoutTheWriterAndTheWriterIsToldEverythingWhenItComes(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.config.InstanceWriter = "unix://" + t.TempDir() + "/w.sock"
	w.start()
	key := w.apply(w.namespace, "alone", "foo", "d")
	watch, err := discoveryv1.NewDeviceInventoryServiceClient(rpctest.Dial(t, w.config.Socket)).
		WatchDevices(t.Context(), &discoveryv1.WatchDevicesRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	inventory := func(ids int) {
		w.eventually(func() bool {
			response, err := watch.Recv()
			require.NoError(t, err)
			for _, one := range response.GetConfigurations() {
				if one.GetNamespace()+"/"+one.GetName() == key {
					return one.GetComplete() && len(one.GetDevices()) == ids
				}
			}
			return false
		}, "inventory")
	}
	inventory(1)
	handler.says("d", answer{ids: []string{"x", "y"}})
	inventory(2)

	stop := rpctest.ServeAt(t, w.config.InstanceWriter, w.writer.register)
	w.reported(key, true, "x", "y")
	require.Len(t, w.writer.of(key), 1, "what came in between is not worth telling")
	stop()
	w.writer.forget()
	rpctest.ServeAt(t, w.config.InstanceWriter, w.writer.register)
	w.reported(key, true, "x", "y")
	require.Len(t, w.writer.of(key), 1, "and nothing is told twice")
}

func TestAConnectionThatTheWriterEndsIsMadeAnewQuietlyAndNothingIsLost(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.config.InstanceWriter = "unix://" + t.TempDir() + "/w.sock"
	w.writer.refusals = []*instancev1.Refusal{{Instance: "ended-8120fe", Reason: akriv0.ReasonDigestCollision}}
	rpctest.ServeAt(t, w.config.InstanceWriter, w.writer.register, rpc.Replicated(100*time.Millisecond))
	w.start()
	key := w.apply(w.namespace, "ended", "foo", "d")
	w.reported(key, true, "x")
	first := func() int {
		count := 0
		for _, report := range w.writer.of(key) {
			if report.GetRevision() == 1 {
				count++
			}
		}
		return count
	}
	w.eventually(func() bool { return first() >= 3 }, "the third stream")
	handler.says("d", answer{ids: []string{"x", "y"}})
	w.reported(key, true, "x", "y")
	w.eventually(func() bool { return first() >= 5 }, "the fifth stream")
	require.Len(t, w.warnings.All(), 1, "of the device that is refused, once")
}

func TestOneReportOfAConfigurationIsUnderWayAtATime(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "window", "foo", "d")
	w.reported(key, true, "x")
	w.eventually(func() bool { return w.registrar.status(handler.endpoint) == active }, "active")
	w.eventually(func() bool {
		reports := w.writer.of(key)
		return reports[len(reports)-1].GetHandlers()[0].GetStatus() == "Active"
	}, "settled")
	w.writer.held.update(func(held *bool) { *held = true })
	w.writer.forget()
	handler.says("d", answer{ids: []string{"a"}})
	w.reported(key, true, "a")
	handler.says("d", answer{ids: []string{"a", "b"}})
	handler.says("d", answer{ids: []string{"a", "b", "c"}})
	watch, err := discoveryv1.NewDeviceInventoryServiceClient(rpctest.Dial(t, w.config.Socket)).
		WatchDevices(t.Context(), &discoveryv1.WatchDevicesRequest{})
	require.NoError(t, err)
	w.eventually(func() bool {
		response, err := watch.Recv()
		require.NoError(t, err)
		return len(response.GetConfigurations()[0].GetDevices()) == 3
	}, "inventory")
	require.Len(t, w.writer.of(key), 1)
	w.writer.held.update(func(held *bool) { *held = false })
	w.reported(key, true, "a", "b", "c")
	require.Len(t, w.writer.of(key), 2)
}

func TestNewNamesEveryMisuse(t *testing.T) {
	_, err := operator.New(operator.Config{}, service.Env{})
	require.ErrorContains(t, err, "--node-name")
	require.ErrorContains(t, err, "--handler-grace")
}
