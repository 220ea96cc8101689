package debugecho_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/admin"
	"akri.sh/libs/handler"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	discoveryv0 "akri.sh/proto/v0"
	debugecho "akri.sh/services/handler-debug-echo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type registrar struct {
	discoveryv0.UnimplementedRegistrationServer
	requests chan *discoveryv0.RegisterDiscoveryHandlerRequest
}

func (r *registrar) RegisterDiscoveryHandler(_ context.Context, request *discoveryv0.RegisterDiscoveryHandlerRequest) (*discoveryv0.Empty, error) {
	r.requests <- request
	return &discoveryv0.Empty{}, nil
}

// run starts the handler beside a registrar and returns how it registered, and its availability file.
func run(t *testing.T, shared bool) (*discoveryv0.RegisterDiscoveryHandlerRequest, string) {
	t.Helper()
	directory, err := os.MkdirTemp("", "e") //nolint:usetesting // the folders of t.TempDir have long names
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	akri := &registrar{requests: make(chan *discoveryv0.RegisterDiscoveryHandlerRequest, 8)}
	rpctest.ServeAt(t, "unix://"+filepath.Join(directory, "agent-registration.sock"), func(server grpc.ServiceRegistrar) {
		discoveryv0.RegisterRegistrationServer(server, akri)
	})
	file := filepath.Join(t.TempDir(), "availability.txt")
	s, err := debugecho.New(debugecho.Config{
		Flags: handler.Flags{DiscoveryHandlersDirectory: directory}, InstancesShared: shared, AvailabilityFile: file,
	}, service.Env{Log: zaptest.NewLogger(t), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	select {
	case request := <-akri.requests:
		return request, file
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the handler did not register")
		return nil, ""
	}
}

func discover(t *testing.T, endpoint, details string) grpc.ServerStreamingClient[discoveryv0.DiscoverResponse] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // less than the safety net
	t.Cleanup(cancel)
	stream, err := discoveryv0.NewDiscoveryHandlerClient(rpctest.Dial(t, "unix://"+endpoint)).
		Discover(ctx, &discoveryv0.DiscoverRequest{DiscoveryDetails: details})
	require.NoError(t, err)
	return stream
}

func devices(t *testing.T, stream grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]) map[string]string {
	t.Helper()
	response, err := stream.Recv()
	require.NoError(t, err)
	found := map[string]string{}
	for _, device := range response.GetDevices() {
		require.Len(t, device.GetProperties(), 1)
		found[device.GetId()] = device.GetProperties()["DEBUG_ECHO_DESCRIPTION"]
	}
	return found
}

func TestDevicesAreTheDescriptions(t *testing.T) {
	request, _ := run(t, true)
	require.Equal(t, "debugEcho", request.GetName())
	require.True(t, request.GetShared())
	require.Equal(t, map[string]string{"foo": "foo", "bar": "bar"},
		devices(t, discover(t, request.GetEndpoint(), "descriptions: [foo, bar, foo]")))
	require.Empty(t, devices(t, discover(t, request.GetEndpoint(), "descriptions: []")))
}

func TestDevicesMayBeOfOneNode(t *testing.T) {
	request, _ := run(t, false)
	require.False(t, request.GetShared())
}

func TestAvailabilityFileTakesDevicesAwayAndBringsThemBack(t *testing.T) {
	request, file := run(t, true)
	stream := discover(t, request.GetEndpoint(), "descriptions: [foo]")
	require.Len(t, devices(t, stream), 1)
	require.NoError(t, os.WriteFile(file, []byte("it is OFFLINE now\n"), 0o600))
	require.Empty(t, devices(t, stream))
	require.NoError(t, os.WriteFile(file, []byte("ONLINE\n"), 0o600))
	require.Len(t, devices(t, stream), 1)
	require.NoError(t, os.WriteFile(file, []byte("OFFLINE"), 0o600))
	require.Empty(t, devices(t, stream))
	require.Empty(t, devices(t, discover(t, request.GetEndpoint(), "descriptions: [foo]")), "a new stream says at once that there is nothing")
	require.NoError(t, os.Remove(file))
	require.Len(t, devices(t, stream), 1)
}

func TestUnusableDetailsAreRefused(t *testing.T) {
	request, _ := run(t, true)
	for details, message := range map[string]string{
		"":                                     "descriptions: required",
		"descriptions: [a]\ndescription: b":    `unknown key "description"`,
		"descriptions: foo":                    "line 1",
		"descriptions: ['']":                   "an empty one",
		"descriptions:\n- a\n- {b: c}":         "line 3",
		"descriptions: [a]\ndescriptions: [b]": "already defined",
	} {
		_, err := discover(t, request.GetEndpoint(), details).Recv()
		require.Equal(t, codes.InvalidArgument, status.Code(err), details)
		require.ErrorContains(t, err, message)
	}
}

func TestRelativeAvailabilityFileIsRefused(t *testing.T) {
	_, err := debugecho.New(debugecho.Config{AvailabilityFile: "x"}, service.Env{})
	require.ErrorContains(t, err, "--availability-file")
}
