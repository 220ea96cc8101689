package discovery_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

const grace = 5 * time.Minute

// requireResult waits until nothing happens at the current time and compares the result.
func (h *handlerInMemory) requireResult(t *testing.T, answered, silent bool, ids ...string) {
	t.Helper()
	synctest.Wait()
	result := h.session.Result()
	require.Equal(t, answered, result.Answered, "answered")
	require.Equal(t, silent, result.Silent, "silent")
	var found []string
	for _, device := range result.Devices {
		found = append(found, device.GetId())
	}
	require.Equal(t, ids, found)
}

// A handler that sends no list has found no device so far after 15 seconds, and has no devices
// after the grace.
func TestSilentHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startInMemory(t, registrarv1.EndpointType_ENDPOINT_TYPE_UDS)
		<-time.After(14 * time.Second)
		h.requireResult(t, false, false)
		<-time.After(2 * time.Second)
		h.requireResult(t, false, true)
		<-time.After(grace)
		h.requireResult(t, true, true)
		h.lists <- []string{"x"}
		h.requireResult(t, true, false, "x")
		<-time.After(2 * grace)
		h.requireResult(t, true, false, "x")
	})
}

// The devices of a handler that restarts and sends no list leave after the grace.
func TestSilentHandlerAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startInMemory(t, registrarv1.EndpointType_ENDPOINT_TYPE_UDS)
		h.lists <- []string{"x", "y"}
		h.requireResult(t, true, false, "x", "y")
		<-time.After(time.Hour)
		h.stop <- struct{}{}
		<-time.After(grace - time.Second)
		h.requireResult(t, true, true, "x", "y")
		<-time.After(3 * time.Second)
		h.requireResult(t, true, true)
	})
}

func TestListEndsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startInMemory(t, registrarv1.EndpointType_ENDPOINT_TYPE_UDS)
		h.lists <- []string{"x", "y"}
		synctest.Wait()
		h.stop <- struct{}{}
		<-time.After(time.Minute)
		h.lists <- []string{"y"}
		h.requireResult(t, true, false, "y")
		<-time.After(2 * grace)
		h.requireResult(t, true, false, "y")
	})
}
