package grace_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/grace"
)

var since = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestWait(t *testing.T) {
	for name, c := range map[string]struct {
		wait  grace.Wait
		after time.Duration
		left  time.Duration
	}{
		"begins":           {grace.Wait{Since: since, For: time.Minute}, 0, time.Minute},
		"almost over":      {grace.Wait{Since: since, For: time.Minute}, time.Minute - 1, 1},
		"over":             {grace.Wait{Since: since, For: time.Minute}, time.Minute, 0},
		"long over":        {grace.Wait{Since: since, For: time.Minute}, time.Hour, 0},
		"a state not seen": {grace.Wait{For: time.Minute}, 0, 0},
		"not tolerated":    {grace.Wait{Since: since}, 0, 0},
	} {
		now := since.Add(c.after)
		require.Equal(t, c.left, c.wait.Left(now), name)
		require.Equal(t, c.left == 0, c.wait.Over(now), name)
	}
	require.Equal(t, since.Add(time.Minute), grace.Wait{Since: since, For: time.Minute}.Until())
}

func TestNext(t *testing.T) {
	var next grace.Next
	for _, step := range []struct{ include, want time.Time }{
		{time.Time{}, time.Time{}},
		{since, since},
		{since.Add(1), since},
		{since.Add(-1), since.Add(-1)},
		{time.Time{}, since.Add(-1)},
	} {
		next.Include(step.include)
		require.Equal(t, step.want, next.At)
	}
}
