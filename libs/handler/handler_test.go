package handler_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/admin"
	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/libs/rpctest"
	discoveryv0 "akri.sh/proto/v0"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a handler until the test ends. The channel receives the result of Run.
func start(t *testing.T, flags handler.Flags, h handler.Handler) (*admin.Health, <-chan error) {
	t.Helper()
	env := handlertest.Env(t)
	server, err := handler.New(handler.Identity{Name: "lamp", Shared: true}, flags, h, env)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended, done := make(chan error, 1), make(chan struct{})
	go func() { defer close(done); ended <- server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return env.Health, ended
}

func discover(t *testing.T, address, details string) handlertest.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), handlertest.Timeout)
	t.Cleanup(cancel)
	stream, err := discoveryv0.NewDiscoveryHandlerClient(rpctest.Dial(t, address)).
		Discover(ctx, &discoveryv0.DiscoverRequest{
			DiscoveryDetails:    details,
			DiscoveryProperties: map[string]*discoveryv0.ByteData{"user": {Vec: []byte("ada")}, "unset": {}},
		}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return stream
}

func ids(t *testing.T, stream handlertest.Stream) []string {
	t.Helper()
	response, err := stream.Recv()
	require.NoError(t, err)
	names := []string{}
	for _, device := range response.GetDevices() {
		names = append(names, device.GetId())
	}
	return names
}

// watchLists returns a Watch handler that sends the lists of the channel.
func watchLists(lists <-chan []string) handler.Watch {
	return func(ctx context.Context, _ handler.Request, send handler.Send) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case list := <-lists:
				devices := []*handler.Device{}
				for _, id := range list {
					devices = append(devices, &handler.Device{Id: id})
				}
				if err := send(devices); err != nil {
					return err
				}
			}
		}
	}
}

func TestHandlerRegistersAndStaysRegistered(t *testing.T) {
	directory := handlertest.Directory(t)
	registrar := handlertest.NewRegistrar()
	stop := registrar.Serve(t, directory)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(nil))
	first := handlertest.Receive(t, registrar.Requests)
	require.Equal(t, "lamp", first.GetName())
	require.Equal(t, filepath.Join(directory, "lamp.sock"), first.GetEndpoint())
	require.Equal(t, discoveryv0.RegisterDiscoveryHandlerRequest_UDS, first.GetEndpointType())
	require.True(t, first.GetShared())

	discover(t, "unix://"+first.GetEndpoint(), "") // a handler in use registers again only after the socket is recreated
	stop()
	again := handlertest.NewRegistrar()
	again.Serve(t, directory)
	require.Equal(t, first.GetEndpoint(), handlertest.Receive(t, again.Requests).GetEndpoint())
}

// A handler whose sockets are removed serves and registers again. Its streams stay open.
func TestRemovedSockets(t *testing.T) {
	for name, remove := range map[string]func(directory string) error{
		"own":          func(directory string) error { return os.Remove(filepath.Join(directory, "lamp.sock")) },
		"registration": func(directory string) error { return os.Remove(filepath.Join(directory, "agent-registration.sock")) },
		"directory":    os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			directory := handlertest.Directory(t)
			registrar := handlertest.NewRegistrar()
			registrar.Serve(t, directory)
			lists := make(chan []string, 1)
			health, _ := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(lists))
			endpoint := handlertest.Receive(t, registrar.Requests).GetEndpoint()
			open := discover(t, "unix://"+endpoint, "")
			lists <- []string{"before"}
			require.Equal(t, []string{"before"}, ids(t, open))

			require.NoError(t, remove(directory))
			require.Equal(t, endpoint, handlertest.Receive(t, registrar.Requests).GetEndpoint())
			lists <- []string{"after"}
			require.Equal(t, []string{"after"}, ids(t, open))
			discover(t, "unix://"+endpoint, "")
			require.Equal(t, 200, get(t, health, "/healthz"))
		})
	}
}

// TestTwoHandlersOfOneName runs two handlers of one name on one node.
func TestTwoHandlersOfOneName(t *testing.T) {
	directory := handlertest.Directory(t)
	registrar := handlertest.NewRegistrar()
	registrar.Serve(t, directory)
	for _, socket := range []string{"lamp", "lamp-2"} {
		lists := make(chan []string, 1)
		start(t, handler.Flags{DiscoveryHandlersDirectory: directory, SocketName: socket}, watchLists(lists))
		request := handlertest.Receive(t, registrar.Requests)
		require.Equal(t, "lamp", request.GetName())
		require.Equal(t, filepath.Join(directory, socket+".sock"), request.GetEndpoint())
		lists <- []string{socket}
	}
	for _, socket := range []string{"lamp", "lamp-2"} {
		require.Equal(t, []string{socket}, ids(t, discover(t, "unix://"+filepath.Join(directory, socket+".sock"), "")))
	}
}

func TestHandlerRegistersOnceRegistrarStarts(t *testing.T) {
	directory := handlertest.Directory(t)
	health, _ := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(nil))
	require.NotNil(t, health)
	discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	registrar := handlertest.NewRegistrar()
	registrar.Serve(t, directory)
	require.Equal(t, "lamp", handlertest.Receive(t, registrar.Requests).GetName())
}

func TestHandlerServesOnPodIP(t *testing.T) {
	directory := handlertest.Directory(t)
	registrar := handlertest.NewRegistrar()
	registrar.Serve(t, directory)
	lists := make(chan []string, 1)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory, PodIP: "127.0.0.1", Port: 19471}, watchLists(lists))
	request := handlertest.Receive(t, registrar.Requests)
	require.Equal(t, "http://127.0.0.1:19471", request.GetEndpoint())
	require.Equal(t, discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK, request.GetEndpointType())
	lists <- []string{"a"}
	require.Equal(t, []string{"a"}, ids(t, discover(t, "127.0.0.1:19471", "")))
}

func TestRefusedRegistrationStopsHandler(t *testing.T) {
	directory := handlertest.Directory(t)
	registrar := handlertest.NewRegistrar()
	registrar.Refusal = status.Error(codes.InvalidArgument, "lamps are not allowed")
	registrar.Serve(t, directory)
	_, ended := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(nil))
	require.ErrorContains(t, handlertest.Receive(t, ended), "lamps are not allowed")
}

func TestListsAreSortedAndNotRepeated(t *testing.T) {
	directory := handlertest.Directory(t)
	handlertest.NewRegistrar().Serve(t, directory)
	lists := make(chan []string, 8)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(lists))
	stream := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	for _, list := range [][]string{{}, {}, {"b", "a"}, {"a", "b"}, {"b"}, {}} {
		lists <- list
	}
	for _, want := range [][]string{{}, {"a", "b"}, {"b"}, {}} {
		require.Equal(t, want, ids(t, stream))
	}
}

func TestInvalidUTF8DeviceIsIgnored(t *testing.T) {
	directory := handlertest.Directory(t)
	handlertest.NewRegistrar().Serve(t, directory)
	lists := make(chan []string, 8)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(lists))
	stream := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	for _, list := range [][]string{{"\xff", "a"}, {"a"}, {"b", "\xff", "a"}} {
		lists <- list
	}
	require.Equal(t, []string{"a"}, ids(t, stream))
	require.Equal(t, []string{"a", "b"}, ids(t, stream))
}

func TestStreamsEndWhenHandlerStops(t *testing.T) {
	directory := handlertest.Directory(t)
	registrar := handlertest.NewRegistrar()
	registrar.Refusal = status.Error(codes.InvalidArgument, "go away")
	_, ended := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(nil))
	stream := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	registrar.Serve(t, directory)
	_, err := stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Error(t, handlertest.Receive(t, ended))
	require.NoFileExists(t, filepath.Join(directory, "lamp.sock"))
}

func TestDiscoverErrorsBecomeStatusCodes(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		code    codes.Code
		message string
	}{
		"invalid request": {handler.Invalid(errors.New("no such lamp")), codes.InvalidArgument, "no such lamp"},
		"wrapped invalid": {errors.Join(handler.Invalid(errors.New("no such lamp"))), codes.InvalidArgument, "no such lamp"},
		"other error":     {errors.New("lamp is hot"), codes.Unknown, "lamp is hot"},
		"status error":    {status.Error(codes.PermissionDenied, "not yours"), codes.PermissionDenied, "not yours"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := handlertest.Directory(t)
			start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, handler.Poll{
				List: func(context.Context, handler.Request) ([]*handler.Device, error) { return nil, test.err },
			})
			_, err := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "").Recv()
			require.Equal(t, test.code, status.Code(err))
			require.Equal(t, test.message, status.Convert(err).Message())
		})
	}
}

func TestHealthFollowsRegistration(t *testing.T) {
	directory := handlertest.Directory(t)
	health, _ := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, watchLists(nil))
	require.Equal(t, 503, get(t, health, "/readyz"))
	registrar := handlertest.NewRegistrar()
	registrar.Serve(t, directory)
	handlertest.Receive(t, registrar.Requests)
	require.Eventually(t, func() bool { return get(t, health, "/readyz") == 200 }, handlertest.Timeout, time.Millisecond)
	require.Equal(t, 200, get(t, health, "/healthz"))
}

func TestInvalidFlagsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		name  string
		flags handler.Flags
		want  string
	}{
		"name is a path":              {"../x", handler.Flags{DiscoveryHandlersDirectory: "/tmp"}, "handler name"},
		"no name":                     {"", handler.Flags{DiscoveryHandlersDirectory: "/tmp"}, "handler name"},
		"socket in another directory": {"x", handler.Flags{DiscoveryHandlersDirectory: "/tmp", SocketName: "../x"}, "--socket-name"},
		"socket of the registrar":     {"x", handler.Flags{DiscoveryHandlersDirectory: "/tmp", SocketName: "agent-registration"}, "--socket-name"},
		"relative directory":          {"x", handler.Flags{DiscoveryHandlersDirectory: "tmp"}, "absolute path"},
		"invalid address":             {"x", handler.Flags{DiscoveryHandlersDirectory: "/tmp", PodIP: "localhost"}, "--pod-ip"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := handler.New(handler.Identity{Name: test.name}, test.flags, watchLists(nil), handlertest.Env(t))
			require.ErrorContains(t, err, test.want)
		})
	}
}
