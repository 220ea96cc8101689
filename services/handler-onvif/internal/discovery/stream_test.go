package discovery

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/handler/handlertest"
	"akri.sh/services/handler-onvif/internal/cameras"
)

func TestFirstListWaitsForTimeout(t *testing.T) {
	door := newFakeCamera(t, "door")
	const burst = 500 * time.Millisecond
	for name, test := range map[string]struct {
		details string
		pending bool // datagrams are pending forever
		want    time.Duration
	}{
		"default of upstream Akri": {want: burst + time.Second},
		"custom timeout":           {details: "discoveryTimeoutSeconds: 4", want: burst + 4*time.Second},
		"long timeout":             {details: "discoveryTimeoutSeconds: 20", want: burst + 20*time.Second},
		"no timeout":               {details: "discoveryTimeoutSeconds: 0", want: burst},
		"incomplete list":          {pending: true, want: time.Second + firstListTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conn.isPending.Store(test.pending)
				full := h.discover(t, test.details, nil)
				empty := h.discover(t, test.details+"\nuuids: {items: []}", nil)
				h.receive(match(door))
				advance(test.want - 1)
				require.Empty(t, full.all())
				require.Empty(t, empty.all())
				advance(firstListInterval + 2*batchDelay)
				require.Equal(t, []list{{door.id(): door.properties()}}, full.all())
				require.Equal(t, []list{{}}, empty.all())
			})
		})
	}
}

func TestSecondStreamUsesCachedCameras(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		h.discover(t, "", nil)
		h.receive(match(door))
		advance(interval + interval/2) // between two checks
		door.requests()
		second := h.discover(t, "", nil)
		advance(2 * batchDelay)
		require.Equal(t, []list{{door.id(): door.properties()}}, second.all())
		require.Equal(t, []string{getInterfaces}, door.requests())
	})
}

func TestQueriesUseCredentialsAndClockOfCamera(t *testing.T) {
	door, yard := newFakeCamera(t, "door"), newFakeCamera(t, "yard")
	door.ahead = hour + 2*time.Second
	for name, test := range map[string]struct {
		properties map[string]string
		door, yard string // user and time of the token
	}{
		"none": {},
		"own before default": {
			properties: map[string]string{"username_door": "ada", "username_default": "guest"},
			door:       " as ada at 2000-01-01T01:00:0", yard: " as guest at 2000-01-01T00:00:0",
		},
		"own only": {properties: map[string]string{"username_DOOR": "ada"}, door: " as ada at "},
		"invalid entries are skipped": {
			properties: map[string]string{"device_credential_list": "text", "username_default": "guest"},
			door:       " as guest at ", yard: " as guest at ",
		},
		"list": {
			properties: map[string]string{"device_credential_list": `["cellar"]`, "cellar": `{"yard": {"username": "bob"}}`},
			yard:       " as bob at ",
		},
		"missing list": {properties: map[string]string{"device_credential_list": `["cellar"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				stream := h.discover(t, "", test.properties)
				advance(1500 * time.Millisecond) // cameras report whole seconds
				h.receive(match(door), match(yard))
				advance(3 * time.Second)
				require.Len(t, stream.last(t), 2)
				for camera, want := range map[*fakeCamera]string{door: test.door, yard: test.yard} {
					requests := camera.requests()
					require.Len(t, requests, 2)
					require.Equal(t, getTime, requests[0], "without credentials")
					if want == "" {
						require.Equal(t, getInterfaces, requests[1])
					} else {
						require.Contains(t, requests[1], getInterfaces+want)
					}
				}
			})
		})
	}
}

func TestQueriesAreRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		after  time.Duration
	}{
		"after a failure":           {status: http.StatusInternalServerError, after: retryInterval},
		"after refused credentials": {status: http.StatusUnauthorized, after: refreshInterval},
		"after a success":           {after: refreshInterval},
	} {
		t.Run(name, func(t *testing.T) {
			door := newFakeCamera(t, "door")
			door.status[getInterfaces] = test.status
			bubble(t, func(t *testing.T, h *harness) {
				stream := h.discover(t, "", map[string]string{"username_default": "ada"})
				h.receive(match(door))
				advance(test.after - time.Second)
				require.Equal(t, 1, count(door.requests(), getInterfaces))
				want := door.properties()
				if test.status != 0 {
					want = door.minimalProperties()
				}
				require.Equal(t, []list{{door.id(): want}}, stream.all())
				door.set(func(c *fakeCamera) { c.status[getInterfaces], c.ip = 0, "10.0.0.9" })
				advance(2 * time.Second)
				require.Equal(t, 1, count(door.requests(), getInterfaces))
				require.Equal(t, list{door.id(): door.properties()}, stream.last(t))
			})
		})
	}
}

func TestPropertiesAreKeptAfterFailedQueries(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		stream := h.discover(t, "", nil)
		h.receive(match(door))
		advance(time.Minute)
		require.Len(t, stream.all(), 1)
		door.set(func(c *fakeCamera) { c.status[getInterfaces] = http.StatusInternalServerError })
		advance(refreshInterval)
		require.Greater(t, count(door.requests(), getInterfaces), 2)
		require.Equal(t, []list{{door.id(): door.properties()}}, stream.all())
	})
}

func TestListsFollowRemovalAndReturn(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		stream := h.discover(t, "", nil)
		h.receive(match(door))
		advance(3 * time.Second)
		before := door.properties()
		door.setOffline(true)
		advance(2 * interval)
		door.setOffline(false)
		door.set(func(c *fakeCamera) { c.ip = "10.0.0.9" })
		h.receive(hello(door))
		advance(3 * time.Second)
		require.Equal(t, []list{{door.id(): before}, {}, {door.id(): door.properties()}}, stream.all())
	})
}

// No list in between lacks the camera.
func TestMovedCameraIsReplacedInOneList(t *testing.T) {
	for name, test := range map[string]struct {
		details string
		id      func(*fakeCamera) string
	}{
		"identity by URL":  {details: "identity: url", id: (*fakeCamera).id},
		"identity by UUID": {details: "identity: uuid", id: func(c *fakeCamera) string { return c.uuid }},
	} {
		t.Run(name, func(t *testing.T) {
			door, moved := newFakeCamera(t, "door"), newFakeCamera(t, "door")
			moved.ip = "10.0.0.8"
			bubble(t, func(t *testing.T, h *harness) {
				stream := h.discover(t, test.details, nil)
				h.receive(match(door))
				advance(3 * time.Second)
				door.setOffline(true)
				h.receive(hello(door, moved.url))
				advance(3 * time.Second)
				require.Equal(t, []list{{test.id(door): door.properties()}, {test.id(moved): moved.properties()}}, stream.all())
			})
		})
	}
}

func TestMovedCameraDoesNotKeepProperties(t *testing.T) {
	door, moved := newFakeCamera(t, "door"), newFakeCamera(t, "door")
	moved.status[getInterfaces] = http.StatusUnauthorized
	bubble(t, func(t *testing.T, h *harness) {
		stream := h.discover(t, "", nil)
		h.receive(match(door))
		advance(3 * time.Second)
		door.setOffline(true)
		h.receive(hello(door, moved.url))
		advance(3 * time.Second)
		require.Equal(t, list{moved.id(): moved.minimalProperties()}, stream.last(t))
	})
}

func TestOutdatedResultsAreIgnored(t *testing.T) {
	moved := &camera{Camera: cameras.Camera{UUID: "door", URL: "http://current/"}, querying: true, nextQuery: time.Now().Add(hour)}
	s := &stream{log: zap.NewNop(), cameras: map[string]*camera{"door": moved}}
	s.handle(queryResult{camera: cameras.Camera{UUID: "door", URL: "http://previous/"}})
	s.handle(queryResult{camera: cameras.Camera{UUID: "removed", URL: "http://previous/"}})
	require.Nil(t, moved.info)
	require.Zero(t, s.delay(true), "the next query starts immediately")
	require.Len(t, s.cameras, 1)
}

func TestInvalidDetailsEndTheStream(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for details, want := range map[string]string{
			"uuid: {}":                     `unknown key "uuid"`,
			"uuids: {action: Include}":     "discoveryDetails: uuids: items: required",
			"identity: name":               `discoveryDetails: identity: "name"`,
			"discoveryTimeoutSeconds: 601": "discoveryDetails: discoveryTimeoutSeconds: 601",
		} {
			require.ErrorContains(t, <-h.discover(t, details, nil).stopped, want)
		}
		advance(time.Second)
		require.Empty(t, h.conn.probes())
	})
}

func TestStreamUnsubscribesWhenItEnds(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		stream, broken := h.discover(t, "", nil), h.discover(t, "", nil)
		broken.mu.Lock()
		broken.sendErr = errors.New("closed")
		broken.mu.Unlock()
		advance(3 * time.Second)
		require.EqualError(t, <-broken.stopped, "closed")
		require.True(t, h.publish())
		stream.cancel()
		require.NoError(t, <-stream.stopped)
		require.False(t, h.publish())
	})
}

// This test holds requests, so it runs in real time.
func TestStreamEndsDuringQueries(t *testing.T) {
	const count, concurrency = 8, 2
	tarpit := newFakeCamera(t, "tarpit")
	tarpit.holding[getInterfaces] = true
	h := newHarness(t, hour, concurrency) // each camera is checked once
	first := h.discover(t, "discoveryTimeoutSeconds: 0", nil)
	for i := range count {
		h.receive(match(&fakeCamera{uuid: fmt.Sprint("camera-", i), url: fmt.Sprint(tarpit.url, "/", i)}))
	}
	for range concurrency {
		handlertest.Receive(t, tarpit.held)
	}
	first.cancel()
	require.NoError(t, handlertest.Receive(t, first.stopped))
	require.Empty(t, first.all())
	require.Eventually(t, func() bool { return tarpit.heldRequests() == 0 }, handlertest.Timeout, time.Millisecond)

	second := h.discover(t, "discoveryTimeoutSeconds: 0", nil)
	for range concurrency {
		handlertest.Receive(t, tarpit.held)
	}
	close(tarpit.release)
	handlertest.Receive(t, second.changed)
	require.Len(t, second.last(t), count)
	tarpit.set(func(c *fakeCamera) { require.LessOrEqual(t, c.maxHeld, concurrency) })
}
