package properties_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/discovery-operator/internal/properties"
)

// watches hands out watches that a test can speak through, or refuses.
type watches struct {
	mu      sync.Mutex
	open    map[properties.Ref]*watch.FakeWatcher
	opened  int
	refused bool
}

func (w *watches) Watch(_ context.Context, ref properties.Ref) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused {
		return nil, errors.New("forbidden")
	}
	w.opened++
	w.open[ref] = watch.NewFakeWithChanSize(10, false)
	return w.open[ref], nil
}

func follower(refused bool) (*properties.Follower, *watches) {
	w := &watches{open: map[properties.Ref]*watch.FakeWatcher{}, refused: refused}
	return properties.NewFollower(zap.NewNop(), w), w
}

// pass lets time pass in the test's own time.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestAllFollowersOfAnObjectShareAWatchUntilTheLastLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, w := follower(false)
		ref := properties.Ref{Kind: "Secret", Namespace: "n", Name: "s"}
		var first, second atomic.Int32
		stopFirst := f.Follow(t.Context(), []properties.Ref{ref}, func() { first.Add(1) })
		stopSecond := f.Follow(t.Context(), []properties.Ref{ref}, func() { second.Add(1) })
		synctest.Wait()
		require.Equal(t, 1, w.opened)
		before := second.Load()
		stopFirst()
		first.Store(0)
		w.open[ref].Modify(nil)
		synctest.Wait()
		require.Zero(t, first.Load())
		require.Equal(t, before+1, second.Load())
		w.open[ref].Stop() // as the API server does from time to time
		pass(time.Second)
		require.Equal(t, 2, w.opened)
		require.Greater(t, second.Load(), before+1, "what was missed in between is looked at")
		stopSecond()
	})
}

func TestWhatCannotBeWatchedIsLookedAtEveryMinute(t *testing.T) {
	for name, refused := range map[string]bool{"it is forbidden": true, "there are too many": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, w := follower(refused)
				for i := range properties.MaxWatches {
					defer f.Follow(t.Context(), []properties.Ref{{Name: fmt.Sprint(i)}}, func() {})()
				}
				synctest.Wait()
				var looked atomic.Int32
				defer f.Follow(t.Context(), []properties.Ref{{Name: "one more"}}, func() { looked.Add(1) })()
				pass(10 * time.Minute) // the pauses have grown by then
				before := looked.Load()
				pass(10 * time.Minute)
				require.InDelta(t, 10, looked.Load()-before, 5)
				require.LessOrEqual(t, w.opened, properties.MaxWatches)
			})
		})
	}
}

func TestRefsAreTheObjectsThatPropertiesName(t *testing.T) {
	value := "v"
	require.ElementsMatch(t, []properties.Ref{
		{Kind: "Secret", Namespace: "own", Name: "s"}, {Kind: "Secret", Namespace: "other", Name: "s"}, {Kind: "ConfigMap", Namespace: "own", Name: "s"},
	}, properties.Refs("own", []akriv0.DiscoveryProperty{
		{ValueFrom: secret("", "s", "a", false)}, {ValueFrom: secret("own", "s", "b", true)}, {ValueFrom: secret("other", "s", "a", false)},
		{ValueFrom: configMap("", "s", "a", false)}, {Value: &value}, {}, {ValueFrom: &akriv0.PropertySource{}},
	}))
}
