package discovery

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

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
