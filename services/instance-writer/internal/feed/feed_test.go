package feed_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/services/instance-writer/internal/feed"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func TestAWatcherHearsOfItsNodeOnceForManyChanges(t *testing.T) {
	f := feed.New()
	a, b := f.Watch("a"), f.Watch("b")
	defer a.Close()
	for range 3 {
		f.Changed(named("x"), "a", "c")
	}
	<-a.Ready
	require.Empty(t, a.Ready)
	require.Empty(t, b.Ready)
	changed, ok := a.Take()
	require.True(t, ok)
	require.Len(t, changed, 1)
	b.Close()
	f.Changed(named("x"), "b")
	require.Empty(t, b.Ready)
}

func TestAWatcherThatNeverTakesOverflows(t *testing.T) {
	f := feed.New()
	w := f.Watch("a")
	defer w.Close()
	for i := range 50_001 {
		f.Changed(named(strconv.Itoa(i)), "a")
	}
	changed, ok := w.Take()
	require.False(t, ok)
	require.Len(t, changed, 50_000)
}
