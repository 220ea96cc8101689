package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
