package cluster

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClockOfTheServer(t *testing.T) {
	var clock serverClock
	require.WithinDuration(t, time.Now(), clock.now(), time.Second, "before the first response")

	ahead := 42 * 24 * time.Hour
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	client := http.Client{Transport: clock.wrap(http.DefaultTransport)}
	get := func() {
		response, err := client.Get(server.URL)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	get()
	require.WithinDuration(t, time.Now().Add(ahead), clock.now(), 3*time.Second)
	ahead = -time.Hour
	get()
	require.WithinDuration(t, time.Now().Add(-time.Hour), clock.now(), 3*time.Second)
}
