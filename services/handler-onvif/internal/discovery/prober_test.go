package discovery

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler/handlertest"
	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

func TestProberIsIdleWithoutSubscribers(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		advance(hour)
		h.receive(hello(door))
		advance(time.Minute)
		require.Empty(t, h.conn.probes())
		require.Empty(t, door.requests())
		h.subscribe(t)
		synctest.Wait()
		require.Len(t, h.conn.probes(), 2)
		require.Equal(t, []string{getTime}, door.requests(), "the Hello before the subscription is cached")
	})
}

func TestProbesAreABurstAndThenOnePerInterval(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		advance(time.Minute)
		h.conn.start = time.Now()
		h.subscribe(t)
		h.subscribe(t)
		advance(3*interval + time.Second)
		const first, second = wsdiscovery.NetworkVideoTransmitter, wsdiscovery.Device
		want := []probe{
			{deviceType: first}, {deviceType: second},
			{after: 200 * time.Millisecond, deviceType: first}, {after: 200 * time.Millisecond, deviceType: second},
			{after: 500 * time.Millisecond, deviceType: first}, {after: 500 * time.Millisecond, deviceType: second},
			{after: 500*time.Millisecond + interval, deviceType: first},
			{after: 500*time.Millisecond + 2*interval, deviceType: second},
			{after: 500*time.Millisecond + 3*interval, deviceType: first},
		}
		sent, ids := h.conn.probes(), map[string]bool{}
		for i := range sent {
			ids[sent[i].id] = true
			sent[i].id = ""
		}
		require.Equal(t, want, sent)
		require.Len(t, ids, len(sent), "a camera answers each message id once")
		require.InDelta(t, len(sent), testutil.ToFloat64(h.Metrics.Probes), 0)
	})
}

func TestProberStopsWithTheLastSubscriber(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		first, second := h.subscribe(t), h.subscribe(t)
		h.receive(match(door))
		first.unsubscribe()
		advance(interval + time.Second)
		require.Len(t, h.conn.probes(), 7)
		require.Len(t, door.requests(), 2)
		second.unsubscribe()
		advance(hour)
		require.Empty(t, h.conn.probes())
		require.LessOrEqual(t, len(door.requests()), 1, "a check that was already due")
	})
}

func TestBurstIsRepeatedOnlyAfterAPause(t *testing.T) {
	door := newFakeCamera(t, "door")
	for name, test := range map[string]struct {
		pause      time.Duration // between the subscriptions
		burst      bool
		completeAt time.Duration
	}{
		"no pause":    {},
		"short pause": {pause: interval / 2},
		"long pause":  {pause: 2 * interval, burst: true, completeAt: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			door.requests()
			bubble(t, func(t *testing.T, h *harness) {
				first := h.subscribe(t)
				h.receive(match(door))
				advance(time.Minute)
				first.unsubscribe()
				advance(test.pause)
				h.conn.probes()
				h.subscribe(t)
				require.Equal(t, !test.burst, h.complete(0))
				advance(test.completeAt)
				require.True(t, h.complete(0))
				require.Equal(t, test.burst, len(h.conn.probes()) > 0)
				require.Equal(t, map[string]string{"door": door.url}, h.urls())
			})
		})
	}
}

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
			{UUID: "door", URL: door.url, Scopes: []string{door.scope}, ClockOffset: hour},
			{UUID: "locked", URL: locked.url, Scopes: []string{locked.scope}}, // an endpoint that requires credentials answers
		}, list)
		require.Equal(t, []string{getTime}, silent.requests())
		require.Empty(t, spare.requests())
		require.Equal(t, 2, h.observed("error"))
	})
}

func TestDatagramResultsAreCounted(t *testing.T) {
	door := newFakeCamera(t, "door")
	unknown := &fakeCamera{uuid: "unknown", url: "http://127.0.0.1:1/"}
	bubble(t, func(t *testing.T, h *harness) {
		h.subscribe(t)
		h.receive("text", "<a/>", string(wsdiscovery.Probe(wsdiscovery.Device)), match(door), bye(unknown))
		advance(batchDelay)
		require.Equal(t, map[string]string{"door": door.url}, h.urls())
		for result, want := range map[string]int{malformed: 2, ignored: 1, handled: 2} {
			require.InDelta(t, want, testutil.ToFloat64(h.Metrics.Datagrams.WithLabelValues(result)), 0, result)
		}
	})
}

func TestListIsCompleteAfterTimeoutAndChecks(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		require.False(t, h.complete(0), "without subscribers")
		h.subscribe(t)
		advance(500*time.Millisecond - 1)
		require.False(t, h.complete(0), "before the end of the burst")
		advance(1)
		require.True(t, h.complete(0))
		require.False(t, h.complete(time.Second))
		advance(time.Second)
		require.True(t, h.complete(time.Second))
		h.conn.isPending.Store(true)
		require.False(t, h.complete(time.Second), "with pending datagrams")
		h.conn.isPending.Store(false)
		advance(hour)
		door.set(func(c *fakeCamera) { c.holding[getTime] = true })
		h.receive(match(door))
		<-door.held
		require.False(t, h.complete(time.Second), "during a check")
		close(door.release)
		advance(batchDelay)
		require.True(t, h.complete(time.Second))
	})
}

func TestListIsCompleteAfterOldCamerasAreChecked(t *testing.T) {
	door, removed := newFakeCamera(t, "door"), newFakeCamera(t, "removed")
	bubble(t, func(t *testing.T, h *harness) {
		subscriber := h.subscribe(t)
		h.receive(match(door), match(removed))
		advance(time.Second)
		subscriber.unsubscribe()
		advance(hour)
		removed.setOffline(true)
		door.requests()
		removed.requests()
		h.subscribe(t)
		require.False(t, h.complete(0))
		advance(500 * time.Millisecond)
		require.True(t, h.complete(0))
		require.Len(t, door.requests(), 1)
		require.Len(t, removed.requests(), 1)
		advance(interval)
		require.Equal(t, map[string]string{"door": door.url}, h.urls())
	})
}

func TestProberContinuesWithoutInterfaces(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conn.noInterfaces.Store(true)
		h.subscribe(t)
		advance(time.Minute)
		require.Zero(t, testutil.ToFloat64(h.Metrics.Probes))
		require.True(t, h.complete(0), "the empty list is complete")
		h.conn.noInterfaces.Store(false)
		advance(interval)
		require.Len(t, h.conn.probes(), 1)
	})
}

func TestProberReturnsErrorOfConn(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.subscribe(t)
		h.conn.failure <- errors.New("broken")
		require.EqualError(t, <-h.stopped, "broken")
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
		require.Eventually(t, func() bool { return count(door.requests(), getTime) > 0 }, handlertest.Patience, time.Millisecond)
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
	require.Eventually(t, h.isBurstComplete, handlertest.Patience, time.Millisecond)
	door.set(func(c *fakeCamera) { c.holding[getTime] = true })
	handlertest.Receive(t, door.held)
	subscriber.unsubscribe()
	h.pretendUnsubscribed(time.Now().Add(-hour))
	h.subscribe(t)
	require.Eventually(t, h.isBurstComplete, handlertest.Patience, time.Millisecond)
	require.False(t, h.complete(0))
	close(door.release)
	require.Eventually(t, func() bool { return h.complete(0) }, handlertest.Patience, time.Millisecond)
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
