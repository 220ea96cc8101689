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

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/services/discovery-operator/internal/properties"
)

// fakeWatchAPI returns watches that the test controls, or errors.
type fakeWatchAPI struct {
	mu      sync.Mutex
	watches map[properties.Ref]*watch.FakeWatcher
	opened  int
	refuse  bool
}

func (a *fakeWatchAPI) Watch(_ context.Context, ref properties.Ref) (watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse {
		return nil, errors.New("forbidden")
	}
	a.opened++
	a.watches[ref] = watch.NewFakeWithChanSize(10, false)
	return a.watches[ref], nil
}

func newWatcher(refuse bool) (*properties.Watcher, *fakeWatchAPI) {
	api := &fakeWatchAPI{watches: map[properties.Ref]*watch.FakeWatcher{}, refuse: refuse}
	return properties.NewWatcher(zap.NewNop(), api), api
}

// notified clears the signal and returns whether it was set.
func notified(changed broadcast.Signal) bool {
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// The time in these tests is that of synctest.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestSubscribersShareOneWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher, api := newWatcher(false)
		ref := properties.Ref{Kind: "Secret", Namespace: "n", Name: "s"}
		first, second := broadcast.NewSignal(), broadcast.NewSignal()
		unsubscribeFirst := watcher.Subscribe(t.Context(), []properties.Ref{ref}, first)
		unsubscribeSecond := watcher.Subscribe(t.Context(), []properties.Ref{ref}, second)
		synctest.Wait()
		require.Equal(t, 1, api.opened)
		unsubscribeFirst()
		notified(first)
		notified(second)

		api.watches[ref].Modify(nil)
		synctest.Wait()
		require.False(t, notified(first))
		require.True(t, notified(second))

		api.watches[ref].Stop() // the API server ends watches from time to time
		wait(time.Second)
		require.Equal(t, 2, api.opened)
		require.True(t, notified(second), "the object may have changed between the watches")
		unsubscribeSecond()
	})
}

// An object that cannot be watched is checked every minute.
func TestObjectsWithoutWatchArePolled(t *testing.T) {
	for name, refuse := range map[string]bool{"the watch is forbidden": true, "there are too many watches": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watcher, api := newWatcher(refuse)
				for i := range properties.MaxWatches {
					defer watcher.Subscribe(t.Context(), []properties.Ref{{Name: fmt.Sprint(i)}}, broadcast.NewSignal())()
				}
				synctest.Wait()
				changed := broadcast.NewSignal()
				defer watcher.Subscribe(t.Context(), []properties.Ref{{Name: "polled"}}, changed)()
				wait(10 * time.Minute) // the backoff has reached its maximum by then
				polls := 0
				for end := time.After(10 * time.Minute); ; polls++ {
					select {
					case <-changed:
						continue
					case <-end:
					}
					break
				}
				require.InDelta(t, 10, polls, 5)
				require.LessOrEqual(t, api.opened, properties.MaxWatches)
			})
		})
	}
}

func TestRefs(t *testing.T) {
	value := "v"
	require.ElementsMatch(t, []properties.Ref{
		{Kind: "Secret", Namespace: "own", Name: "s"}, {Kind: "Secret", Namespace: "other", Name: "s"}, {Kind: "ConfigMap", Namespace: "own", Name: "s"},
	}, properties.Refs("own", []akriv0.DiscoveryProperty{
		{ValueFrom: secret("", "s", "a", false)}, {ValueFrom: secret("own", "s", "b", true)}, {ValueFrom: secret("other", "s", "a", false)},
		{ValueFrom: configMap("", "s", "a", false)}, {Value: &value}, {}, {ValueFrom: &akriv0.PropertySource{}},
	}))
}
