package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// copyAt is a cache that has come that far.
type copyAt struct{ version string }

func (c *copyAt) LastStoreSyncResourceVersion() string { return c.version }

func TestAFenceStandsUntilEveryCacheHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, services := &copyAt{"99"}, &copyAt{"7"}
		f := newFences()
		require.False(t, f.stand("a"))
		f.wrote("a", pods, "100")
		f.wrote("a", services, "101")
		require.True(t, f.stand("a"))
		require.False(t, f.stand("b"))
		pods.version = "100"
		require.True(t, f.stand("a"))
		services.version = "1000"
		require.False(t, f.stand("a"))

		f.wrote("a", pods, "a version that cannot be compared")
		require.False(t, f.stand("a"))
		f.wrote("a", pods, "2000")
		require.True(t, f.stand("a"))
		<-time.After(fenceMax)
		require.False(t, f.stand("a"))
		require.Empty(t, f.kept)
	})
}
