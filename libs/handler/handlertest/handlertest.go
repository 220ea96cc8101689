// Package handlertest runs a Discovery Handler as a test of it wants: beside a registrar, on a socket of the test's own.
package handlertest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"

	"akri.sh/libs/admin"
	"akri.sh/libs/handler"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	discoveryv0 "akri.sh/proto/v0"
)

// Patience is how long a test waits for what must happen.
const Patience = 10 * time.Second

// Registration is what a handler says of itself.
type Registration = discoveryv0.RegisterDiscoveryHandlerRequest

// Stream is an open Discover call.
type Stream = grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]

// Registrar is Akri's side of the registration.
type Registrar struct {
	discoveryv0.UnimplementedRegistrationServer
	// Requests holds the first ones.
	Requests chan *Registration
	// Refusal is the answer to all; nil accepts them.
	Refusal error
}

// NewRegistrar returns one that accepts everything.
func NewRegistrar() *Registrar { return &Registrar{Requests: make(chan *Registration, 16)} }

// RegisterDiscoveryHandler implements `v0.Registration`.
func (r *Registrar) RegisterDiscoveryHandler(_ context.Context, request *Registration) (*discoveryv0.Empty, error) {
	r.Requests <- request
	return &discoveryv0.Empty{}, r.Refusal
}

// Serve answers handlers of the folder until the test ends or stop is called.
func (r *Registrar) Serve(tb testing.TB, directory string) (stop func()) {
	tb.Helper()
	return rpctest.ServeAt(tb, "unix://"+filepath.Join(directory, "agent-registration.sock"), func(server grpc.ServiceRegistrar) {
		discoveryv0.RegisterRegistrationServer(server, r)
	})
}

// Folder is one of the test's own with a short name: a socket's path must fit into 107 bytes.
func Folder(tb testing.TB) string {
	tb.Helper()
	directory, err := os.MkdirTemp("", "h") //nolint:usetesting // the folders of tb.TempDir have long names
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

// Env is what a program is started with.
func Env(tb testing.TB) service.Env {
	tb.Helper()
	return service.Env{Log: zaptest.NewLogger(tb), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}}
}

// Run runs a handler's service beside a registrar until the test ends, and returns how it registered.
func Run[S interface {
	Run(ctx context.Context) error
}](tb testing.TB, start func(handler.Flags, service.Env) (S, error)) *Registration {
	tb.Helper()
	directory, akri := Folder(tb), NewRegistrar()
	akri.Serve(tb, directory)
	s, err := start(handler.Flags{DiscoveryHandlersDirectory: directory}, Env(tb))
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	tb.Cleanup(func() { cancel(); require.NoError(tb, <-done) })
	return Receive(tb, akri.Requests)
}

// Receive fails the test when nothing comes.
func Receive[T any](tb testing.TB, from <-chan T) T {
	tb.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(Patience):
		require.FailNow(tb, "nothing came")
		panic("unreachable")
	}
}

// Discover asks the handler on a socket. The stream ends with the test, or after so long.
func Discover(tb testing.TB, within time.Duration, socket, details string) Stream {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	tb.Cleanup(cancel)
	stream, err := discoveryv0.NewDiscoveryHandlerClient(rpctest.Dial(tb, "unix://"+socket)).
		Discover(ctx, &discoveryv0.DiscoverRequest{DiscoveryDetails: details})
	require.NoError(tb, err)
	return stream
}

// Devices are those of the next list, by id.
func Devices(tb testing.TB, stream Stream) map[string]*handler.Device {
	tb.Helper()
	response, err := stream.Recv()
	require.NoError(tb, err)
	found := map[string]*handler.Device{}
	for _, device := range response.GetDevices() {
		require.NotContains(tb, found, device.GetId())
		found[device.GetId()] = device
	}
	return found
}
