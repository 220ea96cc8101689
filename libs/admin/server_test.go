package admin_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/admin"
)

// freeAddress returns an address of which the port was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

func TestServeStopsWithIdleConnections(t *testing.T) {
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- admin.Serve(ctx, address, admin.Handler(&admin.Health{}, prometheus.NewRegistry())) }()

	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false // not listening yet
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(body) == "ok\n"
	}, 5*time.Second, 10*time.Millisecond)

	cancel()
	require.NoError(t, <-done)
}

func TestServeReportsAnAddressInUse(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	err = admin.Serve(t.Context(), listener.Addr().String(), http.NotFoundHandler())
	require.ErrorContains(t, err, "listen on the admin address")
}
