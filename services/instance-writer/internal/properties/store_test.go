package properties_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/watch"

	"akri.sh/libs/broadcast"
	"akri.sh/services/instance-writer/internal/properties"
)

var (
	camera     = properties.Ref{Kind: "Secret", Namespace: "n", Name: "camera"}
	errTimeout = errors.New("timeout")
)

// fakeAPI has the state of every object and watches that the test controls.
type fakeAPI struct {
	mu      sync.Mutex
	data    map[string][]byte
	readErr error
	refuse  bool // watches
	watches map[properties.Ref]*watch.FakeWatcher
	opened  int
	reads   map[properties.Ref]int
}

func (a *fakeAPI) Read(_ context.Context, ref properties.Ref) (map[string][]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads[ref]++
	return a.data, a.readErr
}

func (a *fakeAPI) Watch(_ context.Context, ref properties.Ref) (watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse {
		return nil, errors.New("forbidden")
	}
	a.opened++
	a.watches[ref] = watch.NewFakeWithChanSize(10, false)
	return a.watches[ref], nil
}

// counts returns the number of watches that were opened and how often the camera was read.
func (a *fakeAPI) counts() (opened, reads int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened, a.reads[camera]
}

func (a *fakeAPI) set(value string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.data, a.readErr = nil, err
	if value != "" {
		a.data = map[string][]byte{"k": []byte(value)}
	}
}

type storeTest struct {
	*properties.Store
	api     *fakeAPI
	changed broadcast.Signal
}

// newStore returns a Store that stops at the end of the test.
func newStore(t *testing.T) (*storeTest, context.Context) {
	t.Helper()
	s := &storeTest{
		api:     &fakeAPI{watches: map[properties.Ref]*watch.FakeWatcher{}, reads: map[properties.Ref]int{}},
		changed: broadcast.NewSignal(),
	}
	s.Store = properties.NewStore(zap.NewNop(), s.api, s.changed)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); s.Wait() })
	return s, ctx
}

// requireState waits until the Store is idle and checks its state of the camera.
func (s *storeTest) requireState(t *testing.T, changed bool, value string, wantErr error) {
	t.Helper()
	synctest.Wait()
	select {
	case <-s.changed:
		require.True(t, changed, "the Store has notified of a change")
	default:
		require.False(t, changed, "the Store has notified of no change")
	}
	data, err := s.Get(camera)
	require.ErrorIs(t, err, wantErr)
	require.Equal(t, value, string(data["k"]))
}

// The time in these tests is that of synctest.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestStoreFollowsAnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := newStore(t)
		s.api.set("first", nil)
		_, err := s.Get(camera)
		require.ErrorIs(t, err, properties.ErrUnread)
		s.Watch(ctx, refsOf(camera))
		s.requireState(t, true, "first", nil)

		s.api.set("second", nil)
		s.api.watches[camera].Modify(nil)
		s.requireState(t, true, "second", nil)
		s.api.watches[camera].Modify(nil)
		s.requireState(t, false, "second", nil) // a key that is not used may have changed

		s.api.set("", properties.ErrNotFound)
		s.api.watches[camera].Delete(nil)
		s.requireState(t, true, "", properties.ErrNotFound)

		s.api.set("third", nil)
		s.api.watches[camera].Stop() // the API server ends watches from time to time
		wait(time.Second)
		s.requireState(t, true, "third", nil)
		require.Equal(t, 2, s.api.opened)

		s.Watch(ctx, refsOf(camera))
		require.Equal(t, 2, s.api.opened, "the object is watched already")
		s.Watch(ctx, nil)
		_, err = s.Get(camera)
		require.ErrorIs(t, err, properties.ErrUnread)
	})
}

func TestUnreachableAPIServerKeepsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := newStore(t)
		s.api.set("", errTimeout)
		s.Watch(ctx, refsOf(camera))
		s.requireState(t, true, "", errTimeout) // there is no state to keep
		s.api.set("value", nil)
		s.api.watches[camera].Stop()
		wait(time.Second)
		s.requireState(t, true, "value", nil)
		s.api.set("", errTimeout)
		s.api.watches[camera].Stop()
		wait(time.Minute)
		s.requireState(t, false, "value", nil)
	})
}

// A right that is granted is used within 5 seconds.
func TestGrantedObjectIsReadSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := newStore(t)
		forbidden := &properties.ForbiddenError{Ref: camera, User: "me"}
		s.api.set("", forbidden)
		s.api.refuse = true
		s.Watch(ctx, refsOf(camera))
		wait(10 * time.Minute) // the backoff has reached its maximum by then
		s.requireState(t, true, "", forbidden)
		s.api.set("value", nil)
		wait(5 * time.Second)
		s.requireState(t, true, "value", nil)
	})
}

// An object that cannot be watched is read every minute.
func TestObjectsWithoutWatchArePolled(t *testing.T) {
	for name, refuse := range map[string]bool{"the watch is forbidden": true, "there are too many watches": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ctx := newStore(t)
				s.api.refuse = refuse
				refs := map[properties.Ref]struct{}{}
				for i := range properties.MaxWatches {
					refs[properties.Ref{Name: fmt.Sprint(i)}] = struct{}{}
				}
				s.Watch(ctx, refs)
				synctest.Wait()
				refs[camera] = struct{}{}
				s.Watch(ctx, refs)
				wait(10 * time.Minute)
				_, before := s.api.counts()
				wait(10 * time.Minute)
				opened, reads := s.api.counts()
				require.InDelta(t, 10, reads-before, 5)
				require.LessOrEqual(t, opened, properties.MaxWatches)
			})
		})
	}
}
