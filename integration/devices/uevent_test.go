package devices_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices"
)

func TestUeventTimeIsArrivalTime(t *testing.T) {
	uevents, err := devices.Uevents()
	require.NoError(t, err)
	t.Cleanup(uevents.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	before := time.Now()
	zram, err := devices.PlugZram(ctx, "content")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, zram.Unplug(context.WithoutCancel(ctx))) })
	first, err := uevents.Await(ctx, "add", zram.DevPath())
	require.NoError(t, err)
	require.True(t, first.After(before))
	require.NoError(t, zram.Unplug(ctx))
	gone, err := uevents.Await(ctx, "remove", zram.DevPath())
	require.NoError(t, err)

	again, err := devices.PlugZram(ctx, "content")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Unplug(context.WithoutCancel(ctx))) })
	later, err := devices.PlugZram(ctx, "content")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, later.Unplug(context.WithoutCancel(ctx))) })
	third, err := uevents.Await(ctx, "add", later.DevPath()) // the earlier event has arrived too
	require.NoError(t, err)
	second, err := uevents.Await(ctx, "add", again.DevPath())
	require.NoError(t, err)
	require.True(t, second.After(gone), "the first event must be returned once")
	require.True(t, second.Before(third), "must be the time of arrival")
}
