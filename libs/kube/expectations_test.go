package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeStore is a cache that has reached a version.
type fakeStore struct{ version string }

func (s *fakeStore) LastStoreSyncResourceVersion() string { return s.version }

func TestExpectationsWaitForEveryCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, services := &fakeStore{"99"}, &fakeStore{"7"}
		e := newExpectations()
		require.True(t, e.satisfied("a"))
		e.expect("a", pods, "100")
		e.expect("a", services, "101")
		require.False(t, e.satisfied("a"))
		require.True(t, e.satisfied("b"))
		pods.version = "100"
		require.False(t, e.satisfied("a"))
		services.version = "1000"
		require.True(t, e.satisfied("a"))

		e.expect("a", pods, "not a number")
		require.True(t, e.satisfied("a"))
		e.expect("a", pods, "2000")
		require.False(t, e.satisfied("a"))
		<-time.After(expectationTimeout)
		require.True(t, e.satisfied("a"))
		require.Empty(t, e.byKey)
	})
}
