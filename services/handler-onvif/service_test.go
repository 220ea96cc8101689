package onvif

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/libs/onvif"
	"akri.sh/libs/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts the handler without network interfaces and returns its registration.
func run(t *testing.T) *handlertest.Registration {
	t.Helper()
	return handlertest.Run(t, func(flags handler.Flags, env service.Env) (*Service, error) {
		return New(Config{
			Flags: flags, Interfaces: []string{"none"}, Interval: time.Second, RequestTimeout: time.Second, Concurrency: 1, MaxPerHost: 1,
		}, env)
	})
}

// The webhook must accept and refuse the same details.
func TestDetailsAreThoseOfTheWebhook(t *testing.T) {
	handlertest.CheckDetails(t, run(t).GetEndpoint())
}

func TestServiceRegistersAsShared(t *testing.T) {
	registration := run(t)
	require.Equal(t, "onvif", registration.GetName())
	require.True(t, registration.GetShared())
}

func TestNewReportsAllInvalidFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	_, err := New(Config{Interfaces: []string{"eth["}, TLSCAFile: file}, handlertest.Env(t))
	for _, want := range []string{
		"--interval 0s: must be at least 1s", "--request-timeout 0s: must be more than 0", "--concurrency 0: must be at least 1",
		`interface pattern "eth["`, "must contain a PEM certificate",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = New(Config{TLSCAFile: file + "2"}, handlertest.Env(t))
	require.ErrorContains(t, err, "--tls-ca-file: open")
}

func TestRequestsAreCountedByResult(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(registry)
	m.countRequest(onvif.GetNetworkInterfaces, nil)
	m.countRequest(onvif.GetNetworkInterfaces, errors.New("failed"))
	m.countRequest(onvif.GetSystemDateAndTime, fmt.Errorf("query: %w", onvif.ErrNotAuthorized))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP akri_onvif_cameras Cameras that answer, before filters.
# TYPE akri_onvif_cameras gauge
akri_onvif_cameras 0
# HELP akri_onvif_datagrams_total Datagrams received, by result.
# TYPE akri_onvif_datagrams_total counter
akri_onvif_datagrams_total{result="heard"} 0
akri_onvif_datagrams_total{result="ignored"} 0
akri_onvif_datagrams_total{result="malformed"} 0
# HELP akri_onvif_probes_total Probes sent. A probe on all interfaces counts once.
# TYPE akri_onvif_probes_total counter
akri_onvif_probes_total 0
# HELP akri_onvif_requests_total Requests to device services, by operation and result (answered, unauthorized, failed).
# TYPE akri_onvif_requests_total counter
akri_onvif_requests_total{operation="GetDeviceInformation",result="answered"} 0
akri_onvif_requests_total{operation="GetDeviceInformation",result="failed"} 0
akri_onvif_requests_total{operation="GetDeviceInformation",result="unauthorized"} 0
akri_onvif_requests_total{operation="GetNetworkInterfaces",result="answered"} 1
akri_onvif_requests_total{operation="GetNetworkInterfaces",result="failed"} 1
akri_onvif_requests_total{operation="GetNetworkInterfaces",result="unauthorized"} 0
akri_onvif_requests_total{operation="GetSystemDateAndTime",result="answered"} 0
akri_onvif_requests_total{operation="GetSystemDateAndTime",result="failed"} 0
akri_onvif_requests_total{operation="GetSystemDateAndTime",result="unauthorized"} 1
`)))
}
