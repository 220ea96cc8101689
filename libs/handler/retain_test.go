package handler_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler"
)

var errLost = errors.New("no response")

func TestRetainedSurvivesLostResponses(t *testing.T) {
	const keep = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var servers handler.Retained[string]
		require.True(t, servers.Record("plc", "first", nil), "new key")
		require.True(t, servers.Record("dead", "", errLost), "new key that fails")
		require.Equal(t, map[string]string{"plc": "first"}, servers.Current(keep))

		<-time.After(keep - time.Nanosecond)
		require.True(t, servers.Record("plc", "ignored", errLost), "from success to failure")
		require.False(t, servers.Record("plc", "ignored", errLost), "still failing")
		require.Equal(t, map[string]string{"plc": "first"}, servers.Current(keep))
		require.True(t, servers.Fresh("plc", keep))

		<-time.After(time.Nanosecond)
		require.Empty(t, servers.Current(keep), "failing for the whole duration")
		require.False(t, servers.Fresh("plc", keep))
		require.Equal(t, "first", servers.Last("plc"))

		require.True(t, servers.Record("plc", "second", nil), "from failure to success")
		require.Equal(t, map[string]string{"plc": "second"}, servers.Current(keep))

		<-time.After(time.Hour) // a key that did not fail stays, however old it is
		require.Equal(t, map[string]string{"plc": "second"}, servers.Current(keep))
	})
}

func TestRetainedWithoutRetention(t *testing.T) {
	var servers handler.Retained[int]
	servers.Record("plc", 1, nil)
	require.Len(t, servers.Current(0), 1)
	servers.Record("plc", 0, errLost)
	require.Empty(t, servers.Current(0))
}

func TestRetainedDue(t *testing.T) {
	const refresh, retry = 5 * time.Minute, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var endpoints handler.Retained[int]
		require.True(t, endpoints.Due("plc", refresh, retry), "never requested")
		endpoints.Record("plc", 0, errLost)
		require.False(t, endpoints.Due("plc", refresh, retry), "failed just now")
		<-time.After(retry)
		require.True(t, endpoints.Due("plc", refresh, retry), "time for a retry")

		endpoints.Record("plc", 1, nil)
		<-time.After(refresh - time.Nanosecond)
		require.False(t, endpoints.Due("plc", refresh, retry), "still fresh")
		<-time.After(time.Nanosecond)
		require.True(t, endpoints.Due("plc", refresh, retry), "time for a refresh")
		endpoints.Record("plc", 0, errLost)
		require.False(t, endpoints.Due("plc", refresh, retry), "the refresh failed just now")
	})
}

func TestRetainedForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hosts handler.Retained[bool]
		hosts.Record("old", true, nil)
		hosts.Record("failing", true, nil)
		<-time.After(time.Minute)
		hosts.Record("failing", false, errLost)
		hosts.Forget(time.Minute)
		require.True(t, hosts.Last("old"), "not older than a minute")
		<-time.After(time.Nanosecond)
		hosts.Forget(time.Minute)
		require.False(t, hosts.Last("old"))
		require.True(t, hosts.Last("failing"), "a failure counts as a record")
	})
}
