package registrar_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/admin"
	"akri.sh/libs/metricstest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/registrar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testRegistrar is a running registrar. Its directory outlives it.
type testRegistrar struct {
	config  registrar.Config
	metrics *prometheus.Registry
	health  *admin.Health
	stop    func()
}

func configIn(dir string) registrar.Config {
	return registrar.Config{
		Socket: "unix://" + filepath.Join(dir, "run", "registrar.sock"), HandlersDir: filepath.Join(dir, "handlers"),
		HandlersSocketMode: 0o666, StateFile: filepath.Join(dir, "run", "registrar.json"), KeepOffline: time.Minute,
	}
}

func start(t *testing.T, config registrar.Config) *testRegistrar {
	t.Helper()
	metrics, health := prometheus.NewRegistry(), &admin.Health{}
	service, err := registrar.New(config, service.Env{Log: zaptest.NewLogger(t), Metrics: metrics, Health: health})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	stopped := false
	r := &testRegistrar{config: config, metrics: metrics, health: health, stop: func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-done)
		}
	}}
	t.Cleanup(r.stop)
	require.Eventually(t, func() bool {
		_, err := os.Stat(r.registrationSocket())
		return err == nil
	}, time.Minute, time.Millisecond)
	return r
}

func (r *testRegistrar) registrationSocket() string {
	return filepath.Join(r.config.HandlersDir, "agent-registration.sock")
}

func (r *testRegistrar) register(t *testing.T, request *discoveryv0.RegisterDiscoveryHandlerRequest) error {
	t.Helper()
	client := discoveryv0.NewRegistrationClient(rpctest.Dial(t, "unix://"+r.registrationSocket()))
	_, err := client.RegisterDiscoveryHandler(t.Context(), request, grpc.WaitForReady(true))
	return err
}

func (r *testRegistrar) client(t *testing.T) registrarv1.RegistrarServiceClient {
	t.Helper()
	return registrarv1.NewRegistrarServiceClient(rpctest.Dial(t, r.config.Socket))
}

func (r *testRegistrar) list(t *testing.T) []*registrarv1.Handler {
	t.Helper()
	response, err := r.client(t).ListHandlers(t.Context(), &registrarv1.ListHandlersRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return response.GetHandlers()
}

// watch opens a stream of the table, with a deadline.
func (r *testRegistrar) watch(t *testing.T) grpc.ServerStreamingClient[registrarv1.WatchHandlersResponse] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	stream, err := r.client(t).WatchHandlers(ctx, &registrarv1.WatchHandlersRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return stream
}

func report(t *testing.T, client registrarv1.RegistrarServiceClient, registration uint64, status registrarv1.HandlerStatus) {
	t.Helper()
	_, err := client.ReportHandlerStatus(t.Context(), &registrarv1.ReportHandlerStatusRequest{Reports: []*registrarv1.HandlerReport{
		{Name: "udev", Endpoint: "/run/udev.sock", Registration: registration, Status: status},
	}})
	require.NoError(t, err)
}

var udev = &discoveryv0.RegisterDiscoveryHandlerRequest{Name: "udev", Endpoint: "/run/udev.sock"}

// A watcher gets the table after each change of a handler, until the handler expires.
func TestWatchHandlers(t *testing.T) {
	config := configIn(t.TempDir())
	config.KeepOffline = 50 * time.Millisecond
	r := start(t, config)
	client := r.client(t)
	watch := r.watch(t)
	next := func() []*registrarv1.Handler {
		response, err := watch.Recv()
		require.NoError(t, err)
		return response.GetHandlers()
	}
	require.Empty(t, next(), "the first table is sent at once")

	require.NoError(t, r.register(t, udev))
	table := next()
	require.Len(t, table, 1)
	require.Equal(t, "/run/udev.sock", table[0].GetEndpoint())
	require.Equal(t, registrarv1.EndpointType_ENDPOINT_TYPE_UDS, table[0].GetEndpointType())
	require.Equal(t, registrarv1.HandlerStatus_HANDLER_STATUS_WAITING, table[0].GetStatus())

	report(t, client, 1, registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE)
	require.Equal(t, registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE, next()[0].GetStatus())
	before := time.Now()
	report(t, client, 1, registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE)
	require.WithinRange(t, next()[0].GetOfflineSince().AsTime(), before, time.Now())
	require.Empty(t, next(), "the handler has expired")
}

func TestNetworkEndpointIsNormalized(t *testing.T) {
	r := start(t, configIn(t.TempDir()))
	for _, endpoint := range []string{"http://10.0.0.7:10000", "10.0.0.7:10000"} {
		require.NoError(t, r.register(t, &discoveryv0.RegisterDiscoveryHandlerRequest{
			Name: "onvif", Endpoint: endpoint, EndpointType: discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK, Shared: true,
		}))
	}
	list := r.list(t)
	require.Len(t, list, 1)
	require.Equal(t, "10.0.0.7:10000", list[0].GetEndpoint())
	require.EqualValues(t, 2, list[0].GetRegistration())
	require.True(t, list[0].GetShared())
}

func TestMalformedRegistrationIsRefused(t *testing.T) {
	r := start(t, configIn(t.TempDir()))
	for _, c := range []struct {
		request *discoveryv0.RegisterDiscoveryHandlerRequest
		want    string
	}{
		{&discoveryv0.RegisterDiscoveryHandlerRequest{Endpoint: "/x"}, `name "": must be 1 to 127 letters`},
		{&discoveryv0.RegisterDiscoveryHandlerRequest{Name: "x", Endpoint: "x.sock"}, `UDS endpoint "x.sock": must be the absolute path of a socket`},
		{&discoveryv0.RegisterDiscoveryHandlerRequest{Name: "x", Endpoint: "/x", EndpointType: 1}, `NETWORK endpoint "/x": must be host:port or http://host:port`},
		{&discoveryv0.RegisterDiscoveryHandlerRequest{Name: "x", Endpoint: "/x", EndpointType: 7}, "endpoint type 7: must be UDS (0) or NETWORK (1)"},
	} {
		err := r.register(t, c.request)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, c.want)
	}
	require.NoError(t, r.register(t, udev), "a valid registration is not affected")
	require.Len(t, r.list(t), 1)
	require.NoError(t, testutil.GatherAndCompare(r.metrics, strings.NewReader(`
# HELP akri_discovery_handlers Registered endpoints of Discovery Handlers, by handler and status (Waiting, Active, Offline).
# TYPE akri_discovery_handlers gauge
akri_discovery_handlers{name="udev",status="Active"} 0
akri_discovery_handlers{name="udev",status="Offline"} 0
akri_discovery_handlers{name="udev",status="Waiting"} 1
# HELP akri_registrations_total Registrations of Discovery Handlers, by result (accepted, refused).
# TYPE akri_registrations_total counter
akri_registrations_total{result="accepted"} 1
akri_registrations_total{result="refused"} 4
`), "akri_discovery_handlers", "akri_registrations_total"))
}

func TestMetricsAreDocumented(t *testing.T) {
	r := start(t, configIn(t.TempDir()))
	require.NoError(t, r.register(t, udev))
	metricstest.Check(t, r.metrics, "../../docs/metrics.md", "registrar")
}

// The table survives a restart. A stop removes the sockets.
func TestRestart(t *testing.T) {
	config := configIn(t.TempDir())
	r := start(t, config)
	require.NoError(t, r.register(t, udev))
	before := r.list(t)
	socket, err := os.Stat(r.registrationSocket())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), socket.Mode().Perm(), "the mode is the configured one")
	watch := r.watch(t)
	_, err = watch.Recv()
	require.NoError(t, err)

	r.stop()
	require.NoFileExists(t, r.registrationSocket())
	require.NoFileExists(t, strings.TrimPrefix(config.Socket, "unix://"))
	_, err = watch.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "an open watch does not delay the stop")

	after := start(t, config).list(t)
	require.Len(t, after, 1)
	require.Equal(t, before[0].String(), after[0].String())
}

// Removed sockets, also with their directories, do not need a restart. The table and open watches
// stay.
func TestRemovedSockets(t *testing.T) {
	config := configIn(t.TempDir())
	r := start(t, config)
	require.NoError(t, r.register(t, udev))
	watch := r.watch(t)
	_, err := watch.Recv()
	require.NoError(t, err)

	run := filepath.Dir(strings.TrimPrefix(config.Socket, "unix://"))
	for _, removed := range []string{r.registrationSocket(), strings.TrimPrefix(config.Socket, "unix://"), config.HandlersDir, run} {
		require.NoError(t, os.RemoveAll(removed))
		require.NoError(t, r.register(t, udev), removed)
		table, err := watch.Recv()
		require.NoError(t, err)
		require.Equal(t, r.list(t)[0].String(), table.GetHandlers()[0].String(), removed)
		require.NoError(t, r.health.Live(t.Context()))
	}
	socket, err := os.Stat(r.registrationSocket())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), socket.Mode().Perm())
	directory, err := os.Stat(config.HandlersDir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), directory.Mode().Perm())
}

func TestCorruptStateFileIsNotFatal(t *testing.T) {
	config := configIn(t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Dir(config.StateFile), 0o700))
	require.NoError(t, os.WriteFile(config.StateFile, []byte("{half"), 0o600))
	r := start(t, config)
	require.Empty(t, r.list(t))
	require.FileExists(t, config.StateFile+".corrupt")
	require.NoError(t, r.register(t, udev))
	require.FileExists(t, config.StateFile)
}

func TestSlowWatcherGetsLastTable(t *testing.T) {
	r := start(t, configIn(t.TempDir()))
	watch := r.watch(t)
	for range 50 {
		require.NoError(t, r.register(t, udev))
	}
	require.Eventually(t, func() bool {
		response, err := watch.Recv()
		require.NoError(t, err)
		return len(response.GetHandlers()) == 1 && response.GetHandlers()[0].GetRegistration() == 50
	}, time.Minute, time.Millisecond)
}

func TestReportWithoutStatusIsRefused(t *testing.T) {
	r := start(t, configIn(t.TempDir()))
	_, err := r.client(t).ReportHandlerStatus(t.Context(), &registrarv1.ReportHandlerStatusRequest{
		Reports: []*registrarv1.HandlerReport{{Name: "udev", Endpoint: "/x"}},
	}, grpc.WaitForReady(true))
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

func TestNewReportsAllProblems(t *testing.T) {
	_, err := registrar.New(registrar.Config{HandlersDir: "x", StateFile: "y", HandlersSocketMode: 0o7777}, service.Env{})
	for _, flag := range []string{"--handlers-dir", "--state-file", "--keep-offline", "--handlers-socket-mode"} {
		require.ErrorContains(t, err, flag)
	}
}
