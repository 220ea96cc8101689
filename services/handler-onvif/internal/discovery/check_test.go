package discovery

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler/handlertest"
	"akri.sh/services/handler-onvif/internal/cameras"
)

func TestSubscribersShareChecks(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		first, second := h.subscribe(t), h.subscribe(t)
		advance(time.Second)
		first.notified()
		second.notified()
		h.receive(match(door), match(door))
		advance(batchDelay)
		require.Equal(t, []string{getTime}, door.requests())
		require.True(t, first.notified())
		require.True(t, second.notified())
		require.Equal(t, map[string]string{"door": door.url}, h.urls())
		require.InDelta(t, 1, testutil.ToFloat64(h.Metrics.Cameras), 0)
		for range 5 {
			advance(interval - 100*time.Millisecond)
			require.Empty(t, door.requests())
			advance(100 * time.Millisecond)
			require.Equal(t, []string{getTime}, door.requests())
		}
		require.Equal(t, 6, h.observed(getTime))
	})
}

func TestCameraIsRemovedAfterTwoFailures(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		subscriber := h.subscribe(t)
		advance(time.Second)
		h.receive(match(door))
		advance(time.Second) // checks start at 1 s, probes at 10.5 s, 20.5 s, ...
		door.setOffline(true)
		advance(13 * time.Second)
		require.Len(t, door.requests(), 2)
		require.Len(t, h.urls(), 1, "after one failure")
		subscriber.notified()
		advance(interval / 2)
		require.Len(t, door.requests(), 1, "the second check follows after half an interval")
		require.Empty(t, h.urls())
		require.True(t, subscriber.notified())
		require.Zero(t, testutil.ToFloat64(h.Metrics.Cameras))
		require.Equal(t, 2, h.observed("error"))
		door.setOffline(false)
		h.receive(match(door))
		advance(interval)
		require.True(t, subscriber.notified())
		require.Len(t, h.urls(), 1)
	})
}

func TestHelloAndByeCauseChecks(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		h.subscribe(t)
		advance(time.Second)
		h.receive(hello(door))
		advance(batchDelay)
		require.Len(t, h.urls(), 1)
		advance(2 * time.Second)
		door.requests()
		h.receive(bye(door))
		advance(batchDelay)
		require.Len(t, door.requests(), 1)
		require.Len(t, h.urls(), 1, "a Bye may be forged")
		advance(2 * time.Second)
		door.setOffline(true)
		h.receive(bye(door))
		advance(batchDelay)
		require.Empty(t, h.urls())
		door.setOffline(false)
		advance(time.Second)
		h.receive(hello(door))
		advance(batchDelay)
		require.Len(t, h.urls(), 1)
	})
}

func TestCameraMovesOnlyIfThePreviousURLFails(t *testing.T) {
	door, moved := newFakeCamera(t, "door"), newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		subscriber := h.subscribe(t)
		h.receive(match(door))
		advance(2 * time.Second)
		subscriber.notified()
		h.receive(hello(door, moved.url))
		advance(batchDelay)
		require.Equal(t, map[string]string{"door": door.url}, h.urls())
		require.Empty(t, moved.requests())
		require.False(t, subscriber.notified())
		door.setOffline(true)
		advance(2 * time.Second)
		h.receive(hello(door, moved.url))
		advance(batchDelay)
		require.Equal(t, map[string]string{"door": moved.url}, h.urls())
		require.True(t, subscriber.notified())
	})
}

func TestAddressesAreCheckedInOrder(t *testing.T) {
	silent, door, spare := newFakeCamera(t, "silent"), newFakeCamera(t, "door"), newFakeCamera(t, "spare")
	silent.offline, door.ahead = true, hour+2*time.Second
	locked := newFakeCamera(t, "locked")
	locked.status[getTime] = http.StatusUnauthorized
	bubble(t, func(t *testing.T, h *harness) {
		h.subscribe(t)
		advance(1500 * time.Millisecond) // cameras report whole seconds
		h.receive(match(door, silent.url, door.url, spare.url), match(locked))
		advance(batchDelay)
		list, _ := h.cameras(0)
		require.Equal(t, []cameras.Camera{
			{UUID: "door", URL: door.url, Scopes: []string{door.scope}, Sender: self, ClockOffset: hour},
			{UUID: "locked", URL: locked.url, Scopes: []string{locked.scope}, Sender: self}, // an endpoint that requires credentials answers
		}, list)
		require.Equal(t, []string{getTime}, silent.requests())
		require.Empty(t, spare.requests())
		require.Equal(t, 2, h.observed("error"))
	})
}

// The following tests hold requests, so they run in real time: the clock of a bubble stops while a
// goroutine waits for a real connection.

func TestUnverifiedEndpointsDoNotDelayCameras(t *testing.T) {
	const concurrency = 2
	const endpoints = 4 * concurrency
	door, tarpit := newFakeCamera(t, "door"), newFakeCamera(t, "tarpit")
	tarpit.holding[getTime] = true
	h := newHarness(t, 20*time.Millisecond, concurrency)
	changed := h.subscribe(t).changed
	h.receive(match(door))
	for len(h.urls()) == 0 {
		handlertest.Receive(t, changed)
	}
	for i := range endpoints {
		h.receive(match(&fakeCamera{uuid: fmt.Sprint("endpoint-", i), url: fmt.Sprint(tarpit.url, "/", i)}))
	}
	for range concurrency {
		handlertest.Receive(t, tarpit.held)
	}
	door.requests()
	for range 2 {
		require.Eventually(t, func() bool { return count(door.requests(), getTime) > 0 }, handlertest.Timeout, time.Millisecond)
	}
	require.Len(t, h.urls(), 1)
	close(tarpit.release)
	for len(h.urls()) < 1+endpoints {
		handlertest.Receive(t, changed)
	}
	tarpit.set(func(c *fakeCamera) { require.Equal(t, concurrency, c.maxHeld) })
}

func TestListIsIncompleteDuringCheckOfOldCamera(t *testing.T) {
	door := newFakeCamera(t, "door")
	h := newHarness(t, 20*time.Millisecond, 1)
	subscriber := h.subscribe(t)
	h.receive(match(door))
	for len(h.urls()) == 0 {
		handlertest.Receive(t, subscriber.changed)
	}
	require.Eventually(t, h.isBurstComplete, handlertest.Timeout, time.Millisecond)
	door.set(func(c *fakeCamera) { c.holding[getTime] = true })
	handlertest.Receive(t, door.held)
	subscriber.unsubscribe()
	h.pretendUnsubscribed(time.Now().Add(-hour))
	h.subscribe(t)
	require.Eventually(t, h.isBurstComplete, handlertest.Timeout, time.Millisecond)
	require.False(t, h.complete(0))
	close(door.release)
	require.Eventually(t, func() bool { return h.complete(0) }, handlertest.Timeout, time.Millisecond)
}

// pretendUnsubscribed sets the time of the last unsubscription.
func (h *harness) pretendUnsubscribed(at time.Time) {
	h.Prober.mu.Lock()
	defer h.Prober.mu.Unlock()
	h.lastUnsubscribe = at
}

func TestProberStopsDuringChecks(t *testing.T) {
	tarpit := newFakeCamera(t, "tarpit")
	tarpit.holding[getTime] = true
	t.Run("", func(t *testing.T) {
		h := newHarness(t, interval, 1)
		h.subscribe(t)
		h.receive(match(tarpit), match(&fakeCamera{uuid: "next", url: tarpit.url + "/next"}))
		handlertest.Receive(t, tarpit.held)
	}) // the end of the subtest stops the Prober, which must not wait for the response
	require.Len(t, tarpit.requests(), 1)
}
