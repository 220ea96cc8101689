package admin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/admin"
)

func get(t *testing.T, handler http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return response
}

func TestFailedChecksAreNamed(t *testing.T) {
	health := &admin.Health{}
	handler := admin.Handler(health, prometheus.NewRegistry())
	require.Equal(t, http.StatusOK, get(t, handler, "/readyz").Code)

	health.AddReadiness("api", func(context.Context) error { return errors.New("not synced") })
	response := get(t, handler, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, response.Code)
	require.Contains(t, response.Body.String(), "api: not synced")
	require.Equal(t, http.StatusOK, get(t, handler, "/healthz").Code)
	require.Equal(t, http.StatusOK, get(t, handler, "/metrics").Code)
}

func TestMetricsAreNotCompressed(t *testing.T) {
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept-Encoding", "gzip, zstd")
	response := httptest.NewRecorder()
	admin.Handler(&admin.Health{}, prometheus.NewRegistry()).ServeHTTP(response, request)
	require.Equal(t, http.StatusOK, response.Code)
	require.Empty(t, response.Header().Get("Content-Encoding"))
}
