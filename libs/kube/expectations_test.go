package kube

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
		e := NewExpectations()
		require.True(t, e.Satisfied("a"))
		e.Expect("a", pods, "100")
		e.Expect("a", services, "101")
		require.False(t, e.Satisfied("a"))
		require.True(t, e.Satisfied("b"))
		pods.version = "100"
		require.False(t, e.Satisfied("a"))
		services.version = "1000"
		require.True(t, e.Satisfied("a"))

		e.Expect("a", pods, "not a number")
		require.True(t, e.Satisfied("a"))
		e.Expect("a", pods, "2000")
		require.False(t, e.Satisfied("a"))
		<-time.After(expectationTimeout)
		require.True(t, e.Satisfied("a"))
		require.Empty(t, e.byKey)
	})
}
