package operator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// awaitSocketMissing waits until the registrar has the cause.
func (h *harness) awaitSocketMissing(endpoint string) {
	h.t.Helper()
	h.eventually(func() bool {
		handler := h.registrar.handler(endpoint)
		return handler.GetStatus() == offline && handler.GetOfflineCause() == registrarv1.OfflineCause_OFFLINE_CAUSE_SOCKET_MISSING
	}, "offline without a socket")
}

func (h *harness) awaitStatus(endpoint string, status registrarv1.HandlerStatus) {
	h.t.Helper()
	h.eventually(func() bool {
		handler := h.registrar.handler(endpoint)
		return handler.GetStatus() == status && handler.GetOfflineCause() == 0
	}, status.String())
}

// A handler whose socket was removed is offline until it has one again. Its open stream continues.
func TestMissingSocket(t *testing.T) {
	h := newHarness(t, forever)
	handler, kill := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "missing", "foo", "d")
	h.reported(key, true, "x")
	h.awaitStatus(handler.endpoint, active)

	require.NoError(t, os.Remove(handler.endpoint))
	h.awaitSocketMissing(handler.endpoint)
	problem := h.problem(key, akriv0.ReasonHandlerSocketMissing)
	require.Equal(t, []string{handler.endpoint}, problem.GetEvidence())
	require.Equal(t, "foo", problem.GetSubject().GetName())
	require.Contains(t, problem.GetMessage(), "restart the Pod of the handler")
	require.Equal(t, forever, problem.GetWait().GetUntil().AsTime().Sub(problem.GetWait().GetSince().AsTime()))
	handler.respond("d", answer{ids: []string{"x", "y"}})
	h.reported(key, true, "x", "y")

	kill()
	h.eventually(func() bool { return handler.openStreams() == 0 }, "the end of the stream")
	h.awaitSocketMissing(handler.endpoint)
	handler.serve(t) // without a registration
	h.awaitStatus(handler.endpoint, active)
	h.eventually(func() bool { return len(h.reported(key, true, "x", "y").GetProblems()) == 0 }, "no problems")
	h.neverGone(key, "x")
}

// After a restart of discovery-operator, a handler without a socket is offline, and then works
// again.
func TestMissingSocketAtStart(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "missing", "foo", "d")
	h.reported(key, true, "x")
	h.stop()
	require.NoError(t, os.Remove(handler.endpoint))
	h.start()
	h.awaitSocketMissing(handler.endpoint)
	h.problem(key, akriv0.ReasonHandlerSocketMissing)
	handler.serve(t)
	h.awaitStatus(handler.endpoint, active)
}

// Handlers register while their servers start.
func TestRegistrationBeforeSocket(t *testing.T) {
	for name, status := range map[string]registrarv1.HandlerStatus{"used": active, "unused": waiting} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, forever)
			h.config.ProbeInterval = forever
			h.start()
			if status == active {
				h.apply(h.namespace, "early", "foo", "d")
			}
			handler := newHandler(t)
			h.registrar.add("foo", handler.endpoint, true)
			other := h.apply(h.namespace, "other", "bar", "d")
			h.eventually(func() bool {
				return slices.Contains(h.problem(other, akriv0.ReasonHandlerNotRegistered).GetEvidence(), "foo")
			}, "the registration")
			require.Equal(t, waiting, h.registrar.status(handler.endpoint))
			handler.serve(t)
			h.awaitStatus(handler.endpoint, status)
		})
	}
}

// A handler that registers again has the whole time again until its socket must exist.
func TestRegistrationWithoutSocket(t *testing.T) {
	h := newHarness(t, forever)
	h.config.ProbeInterval = 12 * time.Second // a busy machine is late by seconds
	h.start()
	handler := newHandler(t)
	h.registrar.add("foo", handler.endpoint, true)
	registered := time.Now()
	h.awaitSocketMissing(handler.endpoint)
	require.GreaterOrEqual(t, time.Since(registered), h.config.ProbeInterval/3)
	require.Less(t, time.Since(registered), h.config.ProbeInterval)
	h.registrar.add("foo", handler.endpoint, true)
	registered = time.Now()
	require.Equal(t, waiting, h.registrar.status(handler.endpoint))
	h.awaitSocketMissing(handler.endpoint)
	require.GreaterOrEqual(t, time.Since(registered), h.config.ProbeInterval/3)
	handler.serve(t)
	h.awaitStatus(handler.endpoint, waiting)
}

// A directory that was removed on the node stays in the container until it is restarted.
func TestRemovedDirectoryOfHandlers(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "mounted")
	require.NoError(t, os.Mkdir(directory, 0o700))
	mounted, err := os.Open(directory)
	require.NoError(t, err)
	defer mounted.Close()
	h := newHarness(t, forever)
	h.registrar.add("foo", fmt.Sprintf("/proc/self/fd/%d/h.sock", mounted.Fd()), true)
	h.start()
	h.eventually(func() bool { return h.health.Live(t.Context()) == nil }, "live")
	require.NoError(t, os.Remove(directory))
	h.eventually(func() bool {
		err := h.health.Live(t.Context())
		return err != nil && strings.Contains(err.Error(), "directories of handlers: the directory /proc/self/fd/")
	}, "not live")
}
