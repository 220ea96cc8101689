// Package handlertest runs Discovery Handlers in tests, with a fake registrar and sockets in a
// temporary directory.
package handlertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/admin"
	"akri.sh/libs/catalog"
	"akri.sh/libs/details/detailstest"
	"akri.sh/libs/details/validators"
	"akri.sh/libs/handler"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	discoveryv0 "akri.sh/proto/v0"
)

// Timeout is how long a test waits for an expected event.
const Timeout = 10 * time.Second

// Registration is the request with which a handler registers.
type Registration = discoveryv0.RegisterDiscoveryHandlerRequest

// Stream is an open Discover call.
type Stream = grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]

// Registrar is a fake registrar.
type Registrar struct {
	discoveryv0.UnimplementedRegistrationServer
	// Requests receives all registrations. It has room for 16.
	Requests chan *Registration
	// Refusal is returned to all registrations. Nil accepts them.
	Refusal error
}

// NewRegistrar returns a Registrar that accepts all registrations.
func NewRegistrar() *Registrar { return &Registrar{Requests: make(chan *Registration, 16)} }

// RegisterDiscoveryHandler implements `v0.Registration`.
func (r *Registrar) RegisterDiscoveryHandler(_ context.Context, request *Registration) (*discoveryv0.Empty, error) {
	r.Requests <- request
	return &discoveryv0.Empty{}, r.Refusal
}

// Serve serves the registration socket in the directory until the test ends or stop is called.
func (r *Registrar) Serve(tb testing.TB, directory string) (stop func()) {
	tb.Helper()
	return rpctest.ServeAt(tb, "unix://"+filepath.Join(directory, "agent-registration.sock"), func(server grpc.ServiceRegistrar) {
		discoveryv0.RegisterRegistrationServer(server, r)
	})
}

// Directory returns a temporary directory with a short path, because the path of a socket is
// limited to 107 bytes.
func Directory(tb testing.TB) string {
	tb.Helper()
	directory, err := os.MkdirTemp("", "h") //nolint:usetesting // tb.TempDir has long paths
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

// Env returns the environment of a service.
func Env(tb testing.TB) service.Env {
	tb.Helper()
	return service.Env{Log: zaptest.NewLogger(tb), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}}
}

// Run runs a handler and a Registrar until the test ends and returns the handler's registration.
// Its name must be that in handler.yaml, which the handlers of this project have.
func Run[S interface {
	Run(ctx context.Context) error
}](tb testing.TB, start func(handler.Flags, service.Env) (S, error)) *Registration {
	tb.Helper()
	directory, registrar := Directory(tb), NewRegistrar()
	registrar.Serve(tb, directory)
	s, err := start(handler.Flags{DiscoveryHandlersDirectory: directory}, Env(tb))
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	tb.Cleanup(func() { cancel(); require.NoError(tb, <-done) })
	registration := Receive(tb, registrar.Requests)
	if name := declaredName(tb); name != "" {
		require.Equal(tb, name, registration.GetName(), "the name in handler.yaml, the name with which the handler registers")
	}
	return registration
}

// declaredName returns the name in handler.yaml. It is empty for handlers without a declaration.
func declaredName(tb testing.TB) string {
	tb.Helper()
	content, err := os.ReadFile("handler.yaml")
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	require.NoError(tb, err)
	var declared struct{ Name string }
	require.NoError(tb, yaml.Unmarshal(content, &declared))
	return declared.Name
}

// RequireAllowed checks that the allow list of a handler of this project contains what its devices
// have: discovery-operator refuses others.
func RequireAllowed(tb testing.TB, name, details string, devices ...*handler.Device) {
	tb.Helper()
	declared, _ := catalog.Find(name)
	classes, prefixes := declared.Allow.DeviceClasses, declared.Allow.PropertyPrefixes
	for _, device := range devices {
		if !slices.Contains(classes, catalog.Everything) {
			require.Empty(tb, device.GetDeviceSpecs(), device.GetId())
		}
		for property := range device.GetProperties() {
			listed := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(property, prefix) })
			require.True(tb, listed || strings.Contains(details, property), "allow in handler.yaml does not contain %s", property)
		}
	}
}

// Receive returns the next value of the channel. It fails the test after Timeout.
func Receive[T any](tb testing.TB, from <-chan T) T {
	tb.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(Timeout):
		require.FailNow(tb, "timeout: no value received")
		panic("unreachable")
	}
}

// Discover opens a Discover stream to the handler on the socket. The stream ends with the test or
// after the timeout. The devices of a handler with a declaration must be those that it allows.
func Discover(tb testing.TB, timeout time.Duration, socket, details string) Stream {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	tb.Cleanup(cancel)
	stream, err := discoveryv0.NewDiscoveryHandlerClient(rpctest.Dial(tb, "unix://"+socket)).
		Discover(ctx, &discoveryv0.DiscoverRequest{DiscoveryDetails: details})
	require.NoError(tb, err)
	if name := declaredName(tb); name != "" {
		return allowedStream{stream, tb, name, details}
	}
	return stream
}

// allowedStream checks all devices that it receives.
type allowedStream struct {
	Stream
	tb            testing.TB
	name, details string
}

func (s allowedStream) Recv() (*discoveryv0.DiscoverResponse, error) {
	s.tb.Helper()
	response, err := s.Stream.Recv()
	RequireAllowed(s.tb, s.name, s.details, response.GetDevices()...)
	return response, err
}

// Devices receives the next list of the stream and returns its devices by id.
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

// CheckDetails checks that the handler on the socket accepts and refuses the same details as the
// webhook, and with the same text.
func CheckDetails(tb testing.TB, socket string) {
	tb.Helper()
	name := declaredName(tb)
	examples, found := detailstest.Corpus[name]
	require.True(tb, found, name)
	for _, details := range examples.Accepted {
		_, err := Discover(tb, Timeout, socket, details).Recv()
		require.NoError(tb, err, details)
		require.NoError(tb, validators.Validate(name, details), details)
	}
	for _, details := range examples.Refused {
		_, err := Discover(tb, Timeout, socket, details).Recv()
		require.Equal(tb, codes.InvalidArgument, status.Code(err), "%q: %v", details, err)
		require.EqualError(tb, validators.Validate(name, details), status.Convert(err).Message(), details)
	}
}
