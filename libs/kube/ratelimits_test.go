package kube_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"akri.sh/libs/kube"
)

func TestRateLimitWithBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := kube.NewRateLimits(10, rate.Every(time.Minute), 3)
		remaining := func(key string) time.Duration { return kube.Remaining(limits.Of(key)) }
		use := func() int {
			used := 0
			for remaining("a") == 0 {
				limits.Of("a").Reserve()
				used++
			}
			return used
		}
		require.Equal(t, 3, use())
		require.Zero(t, remaining("b"))
		<-time.After(remaining("a"))
		require.Equal(t, 1, use())
		require.Equal(t, time.Minute, remaining("a"))
		limits.Of("a").Reserve()
		require.Equal(t, 2*time.Minute, remaining("a"), "a reservation delays the next ones")
		<-time.After(time.Hour)
		require.Equal(t, 3, use(), "unused actions do not add up")
	})
}
