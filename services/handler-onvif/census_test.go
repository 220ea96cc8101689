package onvif

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

func TestNobodyIsProbedOrAskedWhileNobodyFollows(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		pass(hour)
		w.say(hello(door))
		pass(time.Minute)
		require.Empty(t, w.probes())
		require.Empty(t, door.questions())
		w.followed(t)
		synctest.Wait()
		require.Len(t, w.probes(), 2)
		require.Equal(t, []string{askTime}, door.questions(), "what was heard meanwhile is known")
	})
}

func TestFirstProbesAreRepeatedAndThenOneGoesOutEachInterval(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		pass(time.Minute)
		w.start = time.Now()
		w.followed(t)
		w.followed(t) // another one changes nothing
		pass(3*interval + time.Second)
		const first, second = wsdiscovery.NetworkVideoTransmitter, wsdiscovery.Device
		want := []probe{
			{kind: first}, {kind: second},
			{after: 200 * time.Millisecond, kind: first}, {after: 200 * time.Millisecond, kind: second},
			{after: 500 * time.Millisecond, kind: first}, {after: 500 * time.Millisecond, kind: second},
			{after: 500*time.Millisecond + interval, kind: first},
			{after: 500*time.Millisecond + 2*interval, kind: second},
			{after: 500*time.Millisecond + 3*interval, kind: first},
		}
		sent, ids := w.probes(), map[string]bool{}
		for i := range sent {
			ids[sent[i].id] = true
			sent[i].id = ""
		}
		require.Equal(t, want, sent)
		require.Len(t, ids, len(sent), "a camera answers an id once")
		require.InDelta(t, len(sent), testutil.ToFloat64(w.metrics.probes), 0)
	})
}

func TestProbesAndChecksEndWithTheLastFollower(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		one, other := w.followed(t), w.followed(t)
		w.say(match(door))
		one.stop()
		pass(interval + time.Second)
		require.Len(t, w.probes(), 7)
		require.Len(t, door.questions(), 2)
		other.stop()
		pass(hour)
		require.Empty(t, w.probes())
		require.LessOrEqual(t, len(door.questions()), 1, "what was due already")
	})
}

func TestWhoFollowsSoonAfterOthersNeedsNoFirstProbes(t *testing.T) {
	door := plug(t, "door")
	for name, test := range map[string]struct {
		away  time.Duration
		anew  bool
		until time.Duration // the list is complete
	}{
		"at once":            {},
		"soon":               {away: interval / 2},
		"after a long while": {away: 2 * interval, anew: true, until: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			door.questions()
			bubble(t, func(t *testing.T, w *world) {
				first := w.followed(t)
				w.say(match(door))
				pass(time.Minute)
				first.stop()
				pass(test.away)
				w.probes()
				w.followed(t)
				require.Equal(t, !test.anew, w.complete(0))
				pass(test.until)
				require.True(t, w.complete(0))
				require.Equal(t, test.anew, len(w.probes()) > 0)
				require.Equal(t, map[string]string{"door": door.url}, w.urls())
			})
		})
	}
}

func TestACameraIsAskedOnceInAnIntervalForAllFollowers(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		one, other := w.followed(t), w.followed(t)
		pass(time.Second)
		one.told()
		other.told()
		w.say(match(door), match(door))
		pass(moment)
		require.Equal(t, []string{askTime}, door.questions())
		require.True(t, one.told())
		require.True(t, other.told())
		require.Equal(t, map[string]string{"door": door.url}, w.urls())
		require.InDelta(t, 1, testutil.ToFloat64(w.metrics.cameras), 0)
		for range 5 {
			pass(interval - 100*time.Millisecond)
			require.Empty(t, door.questions())
			pass(100 * time.Millisecond)
			require.Equal(t, []string{askTime}, door.questions())
		}
		require.InDelta(t, 6, testutil.ToFloat64(w.metrics.requests.WithLabelValues(askTime, answered)), 0)
	})
}

func TestACameraThatStopsAnsweringLeavesAfterTwoQuestionsAndComesBack(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		follower := w.followed(t)
		pass(time.Second)
		w.say(match(door))
		pass(time.Second) // asked at 1 s, and probes are at 10.5 s, 20.5 s, ...
		door.hangUp(true)
		pass(13 * time.Second)
		require.Len(t, door.questions(), 2)
		require.Len(t, w.urls(), 1, "once is nothing")
		follower.told()
		pass(interval / 2)
		require.Len(t, door.questions(), 1, "and is soon asked again")
		require.Empty(t, w.urls())
		require.True(t, follower.told())
		require.Zero(t, testutil.ToFloat64(w.metrics.cameras))
		require.InDelta(t, 2, testutil.ToFloat64(w.metrics.requests.WithLabelValues(askTime, failed)), 0)
		door.hangUp(false)
		w.say(match(door))
		pass(interval)
		require.True(t, follower.told())
		require.Len(t, w.urls(), 1)
	})
}

func TestHelloIsFollowedAtOnceAndByeWhenItIsTrue(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		w.followed(t)
		pass(time.Second)
		w.say(hello(door))
		pass(moment)
		require.Len(t, w.urls(), 1)
		pass(2 * time.Second)
		door.questions()
		w.say(bye(door))
		pass(moment)
		require.Len(t, door.questions(), 1, "anyone can say it")
		require.Len(t, w.urls(), 1)
		pass(2 * time.Second)
		door.hangUp(true)
		w.say(bye(door))
		pass(moment)
		require.Empty(t, w.urls())
		door.hangUp(false)
		pass(time.Second)
		w.say(hello(door))
		pass(moment)
		require.Len(t, w.urls(), 1)
	})
}

func TestACameraIsFollowedToAnotherAddressButNotLedAway(t *testing.T) {
	door, elsewhere := plug(t, "door"), plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		follower := w.followed(t)
		w.say(match(door))
		pass(2 * time.Second)
		follower.told()
		w.say(hello(door, elsewhere.url))
		pass(moment)
		require.Equal(t, map[string]string{"door": door.url}, w.urls())
		require.Empty(t, elsewhere.questions())
		require.False(t, follower.told())
		door.hangUp(true)
		pass(2 * time.Second)
		w.say(hello(door, elsewhere.url))
		pass(moment)
		require.Equal(t, map[string]string{"door": elsewhere.url}, w.urls())
		require.True(t, follower.told())
	})
}

func TestAddressesAreAskedInTurnUntilOneAnswers(t *testing.T) {
	mute, door, spare := plug(t, "mute"), plug(t, "door"), plug(t, "spare")
	mute.silent, door.ahead = true, hour+2*time.Second
	locked := plug(t, "locked")
	locked.fails[askTime] = http.StatusUnauthorized
	bubble(t, func(t *testing.T, w *world) {
		w.followed(t)
		pass(1500 * time.Millisecond) // it tells whole seconds
		w.say(match(door, mute.url, door.url, spare.url), match(locked))
		pass(moment)
		found, _ := w.cameras(0)
		require.Equal(t, []cameras.Camera{
			{UUID: "door", URL: door.url, Scopes: []string{door.scope}, ClockOffset: hour},
			{UUID: "locked", URL: locked.url, Scopes: []string{locked.scope}}, // who wants to know is there
		}, found)
		require.Equal(t, []string{askTime}, mute.questions())
		require.Empty(t, spare.questions())
		require.InDelta(t, 1, testutil.ToFloat64(w.metrics.requests.WithLabelValues(askTime, unauthorized)), 0)
	})
}

func TestWhatIsHeardIsCountedAndNonsenseChangesNothing(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		w.followed(t)
		w.say("nonsense", "<a/>", string(wsdiscovery.Probe(wsdiscovery.Device)), match(door), bye(plugless("stranger")))
		pass(moment)
		require.Equal(t, map[string]string{"door": door.url}, w.urls())
		for result, want := range map[string]int{malformed: 2, ignored: 1, heard: 2} {
			require.InDelta(t, want, testutil.ToFloat64(w.metrics.datagrams.WithLabelValues(result)), 0, result)
		}
	})
}

// plugless is a camera that has only a name.
func plugless(uuid string) *camera { return &camera{uuid: uuid, url: "http://127.0.0.1:1/"} }

func TestTheListIsCompleteWhenAllHadTimeAndWereAsked(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		require.False(t, w.complete(0), "nobody follows")
		w.followed(t)
		pass(500*time.Millisecond - 1)
		require.False(t, w.complete(0), "not all first probes are sent")
		pass(1)
		require.True(t, w.complete(0))
		require.False(t, w.complete(time.Second))
		pass(time.Second)
		require.True(t, w.complete(time.Second))
		w.busy.Store(true)
		require.False(t, w.complete(time.Second), "something is not heard yet")
		w.busy.Store(false)
		pass(hour)
		door.set(func(c *camera) { c.holding[askTime] = true })
		w.say(match(door))
		<-door.held
		require.False(t, w.complete(time.Second), "a camera is asked")
		close(door.release)
		pass(moment)
		require.True(t, w.complete(time.Second))
	})
}

func TestAfterALongWhileEveryCameraIsAskedBeforeTheListIsComplete(t *testing.T) {
	door, gone := plug(t, "door"), plug(t, "gone")
	bubble(t, func(t *testing.T, w *world) {
		follower := w.followed(t)
		w.say(match(door), match(gone))
		pass(time.Second)
		follower.stop()
		pass(hour)
		gone.hangUp(true)
		door.questions()
		gone.questions()
		w.followed(t)
		require.False(t, w.complete(0))
		pass(500 * time.Millisecond)
		require.True(t, w.complete(0))
		require.Len(t, door.questions(), 1)
		require.Len(t, gone.questions(), 1)
		pass(interval)
		require.Equal(t, map[string]string{"door": door.url}, w.urls())
	})
}

func TestWithoutAnInterfaceProbingGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.quiet.Store(true)
		w.followed(t)
		pass(time.Minute)
		require.Zero(t, testutil.ToFloat64(w.metrics.probes))
		require.True(t, w.complete(0), "that nobody can be found is an answer too")
		w.quiet.Store(false)
		pass(interval)
		require.Len(t, w.probes(), 1)
	})
}

func TestTheCensusEndsWithItsNetwork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.followed(t)
		w.cut <- errors.New("cut")
		require.EqualError(t, <-w.ended, "cut")
	})
}

// What hangs hangs in real time: a bubble's does not pass while a real connection is waited for.

func TestStrangersThatNeverAnswerDoNotHoldUpCameras(t *testing.T) {
	const strangers = 8 // four times as many as are asked at once
	door, tarpit := plug(t, "door"), plug(t, "tarpit")
	tarpit.holding[askTime] = true
	w := newWorld(t, 20*time.Millisecond, strangers/4)
	changed := w.followed(t).changed
	w.say(match(door))
	for len(w.urls()) == 0 {
		handlertest.Receive(t, changed)
	}
	for i := range strangers {
		w.say(match(&camera{uuid: fmt.Sprint("stranger-", i), url: fmt.Sprint(tarpit.url, "/", i)}))
	}
	for range strangers / 4 {
		handlertest.Receive(t, tarpit.held)
	}
	door.questions()
	require.Eventually(t, func() bool { return count(door.questions(), askTime) > 0 }, handlertest.Patience, time.Millisecond)
	require.Eventually(t, func() bool { return count(door.questions(), askTime) > 0 }, handlertest.Patience, time.Millisecond, "again and again")
	require.Len(t, w.urls(), 1)
	close(tarpit.release)
	for len(w.urls()) < 1+strangers {
		handlertest.Receive(t, changed)
	}
	tarpit.set(func(c *camera) { require.Equal(t, strangers/4, c.most, "questions at once") })
}

func TestACameraThatIsBeingAskedAgainAfterALongWhileHoldsUpTheList(t *testing.T) {
	door := plug(t, "door")
	const interval = 20 * time.Millisecond
	w := newWorld(t, interval, 1)
	follower := w.followed(t)
	w.say(match(door))
	for len(w.urls()) == 0 {
		handlertest.Receive(t, follower.changed)
	}
	require.Eventually(t, w.isProbed, handlertest.Patience, time.Millisecond)
	door.set(func(c *camera) { c.holding[askTime] = true })
	handlertest.Receive(t, door.held)
	follower.stop()
	require.True(t, wait(t.Context(), 2*interval))
	w.followed(t)
	require.Eventually(t, w.isProbed, handlertest.Patience, time.Millisecond)
	require.False(t, w.complete(0), "it may have left")
	close(door.release)
	require.Eventually(t, func() bool { return w.complete(0) }, handlertest.Patience, time.Millisecond)
}

func TestTheCensusEndsInTheMiddleOfQuestions(t *testing.T) {
	tarpit := plug(t, "tarpit")
	tarpit.holding[askTime] = true
	t.Run("", func(t *testing.T) {
		w := newWorld(t, interval, 1)
		w.followed(t)
		w.say(match(tarpit), match(&camera{uuid: "next", url: tarpit.url + "/next"}))
		handlertest.Receive(t, tarpit.held)
	}) // its end ends the census, which must not wait for the answer
	require.Len(t, tarpit.questions(), 1)
}
