package admin_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/admin"
	"akri.sh/libs/listentest"
	"akri.sh/libs/pki"
)

func TestServeStopsWithIdleConnections(t *testing.T) {
	address := listentest.Address(t)
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
	}, time.Minute, 10*time.Millisecond)

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

// A Guard serves the metrics with TLS and only to clients that it admits, and the admin address
// then has no metrics.
func TestGuard(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "secret"}))
	ca, err := pki.NewCA(time.Now(), "ca", time.Hour)
	require.NoError(t, err)
	pair, err := pki.NewServer(time.Now(), ca, "server", time.Hour, []string{"localhost"})
	require.NoError(t, err)
	var current pki.Current
	current.Store(pair)
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	guard := &admin.Guard{
		Address: listentest.Address(t), Certificate: current.GetCertificate, RefusedConnections: refused,
		Admit: func(metrics http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "" {
					http.Error(w, "refused", http.StatusUnauthorized)
					return
				}
				metrics.ServeHTTP(w, r)
			})
		},
	}
	require.True(t, guard.Enabled())
	require.False(t, new(admin.Guard).Enabled())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- guard.Serve(ctx, registry) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.CertificatePEM)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost"},
	}}
	read := func(token string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+guard.Address+"/metrics", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", token)
		response, err := client.Do(request)
		if err != nil {
			return 0, err.Error() // not listening yet
		}
		defer response.Body.Close()
		require.Equal(t, 1, response.ProtoMajor)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { code, _ := read("token"); return code == http.StatusOK }, time.Minute, 10*time.Millisecond)
	_, body := read("token")
	require.Contains(t, body, "secret 0")
	code, body := read("")
	require.Equal(t, http.StatusUnauthorized, code)
	require.NotContains(t, body, "secret")

	handler := admin.Handler(&admin.Health{}, nil)
	require.Equal(t, http.StatusNotFound, get(t, handler, "/metrics").Code)
	require.Equal(t, http.StatusOK, get(t, handler, "/readyz").Code)
}
