package operator_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

var notFound = &instancev1.Problem{Reason: akriv0.ReasonPropertyNotFound, Message: `discoveryProperty "password": Secret default/s not found`}

// Values are passed to the handler. An empty value differs from no value.
func TestProperties(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "properties", "foo", "d", password("hidden"), property{"empty", []byte{}}, property{"unset", nil})
	require.Empty(t, h.reported(key, true, "x").GetProblems())
	got := handler.received()[0].GetDiscoveryProperties()
	require.Len(t, got, 3)
	require.Equal(t, "hidden", string(got["password"].GetVec()))
	require.NotNil(t, got["empty"].Vec)
	require.Nil(t, got["unset"].Vec)
}

// A changed value is sent on a new stream. No device leaves meanwhile.
func TestChangedProperty(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "rotated", "foo", "d", password("first"))
	h.reported(key, true, "x")
	for i, next := range []string{"second", "third"} {
		h.setProperties(key, password(next))
		h.eventually(func() bool { return len(handler.received()) == i+2 && handler.openStreams() == 1 }, next)
	}
	h.setProperties(key)
	h.eventually(func() bool { return len(handler.received()) == 4 }, "the request without the property")
	require.Equal(t, []string{"first", "second", "third", ""}, handler.passwords())
	h.reported(key, true, "x")
	h.neverGone(key, "x")
}

// Discovery starts when the properties have values.
func TestMissingProperty(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "missing", "foo", "d")
	h.reported(key, true, "x")
	other := h.apply(h.namespace, "other", "bar", "d")
	h.setProblem(other, notFound)
	startNamed(t, h, "bar", "d", "y")
	require.Equal(t, notFound.GetMessage(), h.problem(other, akriv0.ReasonPropertyNotFound).GetMessage())
	report := h.reported(other, false)
	require.Len(t, report.GetProblems(), 1)
	require.False(t, report.GetAnswered())
	require.Len(t, handler.received(), 1)
	h.setProperties(other, password("value"))
	require.Empty(t, h.reported(other, true, "y").GetProblems())
}

// A property that loses its value is reported. The stream and its devices stay.
func TestLostProperty(t *testing.T) {
	h := newHarness(t, forever)
	handler, kill := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "lost", "foo", "d", password("value"))
	h.reported(key, true, "x")
	h.setProblem(key, notFound)
	h.problem(key, akriv0.ReasonPropertyNotFound)
	h.reported(key, true, "x")
	require.Equal(t, 1, handler.openStreams())

	// A handler that restarts gets the last values.
	kill()
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == offline }, "offline")
	handler.serve(t)
	h.eventually(func() bool { return len(handler.received()) == 2 }, "the request after the restart")
	h.setProperties(key, password("value"))
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
		return len(reports[len(reports)-1].GetProblems()) == 0
	}, "no problems")
	require.Equal(t, []string{"value", "value"}, handler.passwords(), "the stream with the same value stays open")
	h.neverGone(key, "x")
}

// The node names its handlers, and gets the discovery requests of their Configurations only.
func TestHandlersAreSent(t *testing.T) {
	h := newHarness(t, forever)
	startHandler(t, h, "d", "x")
	h.start()
	h.reported(h.apply(h.namespace, "own", "foo", "d"), true, "x")
	handlers := func(want ...string) {
		h.eventually(func() bool {
			requests := h.writer.configurations.received()
			last := requests[len(requests)-1]
			return last.GetNode() == node && slices.Equal(last.GetHandlers(), want)
		}, "handlers")
	}
	handlers("foo")
	other := h.apply(h.namespace, "other", "bar", "d")
	h.problem(other, akriv0.ReasonHandlerNotRegistered)
	startNamed(t, h, "bar", "d", "y")
	require.Empty(t, h.reported(other, true, "y").GetProblems())
	handlers("bar", "foo")

	// A handler that the registrar does not list any more, but that can be reached, is still used.
	h.registrar.clear()
	h.edit(other, func(request *configurationv1.DiscoveryRequest) {
		request.BrokerProperties = map[string]string{"MINE": "1"}
	})
	h.eventually(func() bool { return h.reported(other, true, "y").GetDevices()[0].GetProperties()["MINE"] == "1" }, "the edit")
	handlers("bar", "foo")
}

// Values of Secrets do not leave the node, whatever the order of changes. Literal values do.
func TestSecretsAreNotSentOverTheNetwork(t *testing.T) {
	h, network, key, stop := startNetwork(t)
	defer stop()
	const secret = "hidden"
	literal := func(request *configurationv1.DiscoveryRequest) {
		setProperties(request, []property{password(secret)})
		request.Properties["password"].Literal = true
	}
	handlers := []*fakeHandler{network.hosts[first], network.hosts[second]}
	received := func() (requests int, values []string) {
		for _, handler := range handlers {
			requests += len(handler.received())
			values = append(values, handler.passwords()...)
		}
		return requests, values
	}

	h.setProperties(key, password(secret))
	problem := h.problem(key, akriv0.ReasonInvalidDetails)
	require.Contains(t, problem.GetMessage(), `discoveryProperties ["password"] are from Secrets or ConfigMaps and are not sent to`)
	require.Contains(t, problem.GetMessage(), "useNetworkConnection=false")
	requests, values := received()
	require.Equal(t, 2, requests, "the requests without properties")
	require.NotContains(t, values, secret)

	// Neither does a value that changes, or that was lost meanwhile.
	h.setProblem(key, notFound)
	h.setProperties(key, password("rotated"))

	h.edit(key, literal)
	h.eventually(func() bool { requests, _ := received(); return requests == 4 }, "requests with the literal value")
	require.Empty(t, h.reported(key, true, "x", "y").GetProblems())
	_, values = received()
	require.NotContains(t, values, "rotated")

	// The same value as a reference ends the streams that have it.
	h.setProperties(key, password(secret))
	h.problem(key, akriv0.ReasonInvalidDetails)
	h.eventually(func() bool { return handlers[0].openStreams()+handlers[1].openStreams() == 0 }, "the end of the streams")
}
