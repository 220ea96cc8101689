package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/listentest"
)

// Devices of a handler that sends no list after a restart of both services leave after the grace.
func TestSilentHandler(t *testing.T) {
	h := newHarness(t, 300*time.Millisecond)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "silent", "foo", "d")
	h.reported(key, true, "x")
	h.stop()
	h.writer.forget()
	handler.respond("d", answer{silent: true})
	h.start()
	require.True(t, h.reported(key, true).GetAnswered())
	require.False(t, h.writer.reportsOf(key)[0].GetAnswered())
	handler.respond("d", answer{ids: []string{"x"}})
	h.reported(key, true, "x")
}

// A handler that is offline waits again when the last Configuration that used it is deleted.
func TestOfflineHandlerWithoutConfiguration(t *testing.T) {
	h := newHarness(t, forever)
	handler, kill := startHandler(t, h, "d", "x")
	h.start()
	first, second := h.apply(h.namespace, "first", "foo", "d"), h.apply(h.namespace, "second", "foo", "d")
	h.reported(first, true, "x")
	h.reported(second, true, "x")
	kill()
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == offline }, "offline")
	h.remove(first)
	h.problem(second, akriv0.ReasonHandlerOffline)
	require.Equal(t, offline, h.registrar.status(handler.endpoint))
	h.remove(second)
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == waiting }, "waiting")
}

// A handler that no Configuration uses is offline while it cannot be reached.
func TestUnusedHandlers(t *testing.T) {
	h := newHarness(t, forever)
	h.config.ProbeInterval = 150 * time.Millisecond
	startHandler(t, h, "d", "x")
	missing := newHandler(t)
	h.registrar.add("missing", missing.endpoint, true)
	nowhere := listentest.Address(t)
	h.registrar.add("nowhere", nowhere, true)
	h.start()
	h.awaitOffline(nowhere)
	h.eventually(func() bool { return h.registrar.status(missing.endpoint) == offline }, "offline")
	missing.serve(t)
	h.eventually(func() bool { return h.registrar.status(missing.endpoint) == waiting }, "waiting")
	require.Empty(t, missing.received())
}
