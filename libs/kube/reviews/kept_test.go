package reviews_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/kube/reviews"
)

const (
	interval = 30 * time.Second
	maxAge   = 5 * time.Minute
	size     = 10
)

var errDeleted = errors.New("deleted")

func keep() *reviews.Kept[int] {
	return reviews.Keep[int](reviews.Options{
		MaxResults: size, MaxRefusals: size, Refused: func(err error) bool { return errors.Is(err, errDeleted) },
		RefusalAge: 10 * time.Second, Interval: interval, MaxAge: maxAge, RetryInterval: 5 * time.Second,
	})
}

func TestResultsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep()
		count := 0
		get := func(err error) (int, error) {
			return k.Get(t.Context(), "key", time.Time{}, func(context.Context, bool) (int, error) { count++; return count, err })
		}
		first, err := get(nil)
		require.NoError(t, err)
		require.Equal(t, 1, first)
		<-time.After(interval - time.Second)
		same, err := get(errors.New("not called"))
		require.NoError(t, err)
		require.Equal(t, 1, same)

		// The API server does not answer.
		<-time.After(2 * time.Second)
		for range 3 {
			kept, err := get(errors.New("timeout"))
			require.NoError(t, err)
			require.Equal(t, 1, kept)
		}
		require.Equal(t, 2, count, "reviews are repeated at an interval")
		<-time.After(maxAge)
		_, err = get(errors.New("timeout"))
		require.EqualError(t, err, "timeout", "a result is valid for a limited time")

		_, err = get(nil)
		require.NoError(t, err)
		<-time.After(interval + time.Second)
		_, err = get(errDeleted)
		require.EqualError(t, err, "deleted")
		_, known := k.Known("key")
		require.False(t, known)
		_, err = get(nil)
		require.EqualError(t, err, "deleted", "a refusal is not reviewed again at once")
	})
}

// A flood of keys takes a limited amount of memory.
func TestNumberOfKeysIsLimited(t *testing.T) {
	k := keep()
	for _, answer := range []error{nil, errDeleted} {
		for i := range 2 * size {
			_, _ = k.Get(t.Context(), strconv.Itoa(i), time.Time{}, func(context.Context, bool) (int, error) { return i, answer })
		}
	}
	results, refusals := 0, 0
	for i := range 2 * size {
		if _, known := k.Known(strconv.Itoa(i)); known {
			results++
		}
		if k.Refusal(strconv.Itoa(i)) != nil {
			refusals++
		}
	}
	require.LessOrEqual(t, results, size)
	require.Equal(t, size, refusals)
}
