package handler_test

import (
	"context"
	"errors"
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

// start runs a handler until the test ends; the channel tells how it ended.
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
	ctx, cancel := context.WithTimeout(t.Context(), handlertest.Patience)
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

// told is a Watch handler whose lists come from the test.
func told(lists <-chan []string) handler.Watch {
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
	directory := handlertest.Folder(t)
	akri := handlertest.NewRegistrar()
	stop := akri.Serve(t, directory)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, told(nil))
	first := handlertest.Receive(t, akri.Requests)
	require.Equal(t, "lamp", first.GetName())
	require.Equal(t, filepath.Join(directory, "lamp.sock"), first.GetEndpoint())
	require.Equal(t, discoveryv0.RegisterDiscoveryHandlerRequest_UDS, first.GetEndpointType())
	require.True(t, first.GetShared())

	discover(t, "unix://"+first.GetEndpoint(), "") // in use: only a new socket is a reason to register again
	stop()
	again := handlertest.NewRegistrar()
	again.Serve(t, directory)
	require.Equal(t, first.GetEndpoint(), handlertest.Receive(t, again.Requests).GetEndpoint())
}

func TestHandlerThatStartsBeforeAkriRegistersWhenAkriComes(t *testing.T) {
	directory := handlertest.Folder(t)
	health, _ := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, told(nil))
	require.NotNil(t, health)
	discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	akri := handlertest.NewRegistrar()
	akri.Serve(t, directory)
	require.Equal(t, "lamp", handlertest.Receive(t, akri.Requests).GetName())
}

func TestHandlerServesOnTheNetworkWhenItHasAPodAddress(t *testing.T) {
	directory := handlertest.Folder(t)
	akri := handlertest.NewRegistrar()
	akri.Serve(t, directory)
	lists := make(chan []string, 1)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory, PodIP: "127.0.0.1", Port: 19471}, told(lists))
	request := handlertest.Receive(t, akri.Requests)
	require.Equal(t, "http://127.0.0.1:19471", request.GetEndpoint())
	require.Equal(t, discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK, request.GetEndpointType())
	lists <- []string{"a"}
	require.Equal(t, []string{"a"}, ids(t, discover(t, "127.0.0.1:19471", "")))
}

func TestRefusedRegistrationEndsTheHandlerWithTheReason(t *testing.T) {
	directory := handlertest.Folder(t)
	akri := handlertest.NewRegistrar()
	akri.Refusal = status.Error(codes.InvalidArgument, "lamps are not allowed")
	akri.Serve(t, directory)
	_, ended := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, told(nil))
	require.ErrorContains(t, handlertest.Receive(t, ended), "lamps are not allowed")
}

func TestListsAreCompleteSortedAndNeverRepeated(t *testing.T) {
	directory := handlertest.Folder(t)
	handlertest.NewRegistrar().Serve(t, directory)
	lists := make(chan []string, 8)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, told(lists))
	stream := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	for _, list := range [][]string{{}, {}, {"b", "a"}, {"a", "b"}, {"b"}, {}} {
		lists <- list
	}
	for _, want := range [][]string{{}, {"a", "b"}, {"b"}, {}} {
		require.Equal(t, want, ids(t, stream))
	}
}

func TestADeviceThatIsNoTextHidesNoOther(t *testing.T) {
	directory := handlertest.Folder(t)
	handlertest.NewRegistrar().Serve(t, directory)
	lists := make(chan []string, 8)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, told(lists))
	stream := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	for _, list := range [][]string{{"\xff", "a"}, {"a"}, {"b", "\xff", "a"}} {
		lists <- list
	}
	require.Equal(t, []string{"a"}, ids(t, stream))
	require.Equal(t, []string{"a", "b"}, ids(t, stream))
}

func TestHandlerEndsItsStreamsWhenItStops(t *testing.T) {
	directory := handlertest.Folder(t)
	akri := handlertest.NewRegistrar()
	akri.Refusal = status.Error(codes.InvalidArgument, "go away")
	_, ended := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, told(nil))
	stream := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "")
	akri.Serve(t, directory)
	_, err := stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Error(t, handlertest.Receive(t, ended))
	require.NoFileExists(t, filepath.Join(directory, "lamp.sock"))
}

func TestErrorsOfDiscoveryReachTheUser(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		code    codes.Code
		message string
	}{
		"a mistake in the request": {handler.Invalid(errors.New("no such lamp")), codes.InvalidArgument, "no such lamp"},
		"a wrapped mistake":        {errors.Join(handler.Invalid(errors.New("no such lamp"))), codes.InvalidArgument, "no such lamp"},
		"trouble":                  {errors.New("lamp is hot"), codes.Unknown, "lamp is hot"},
		"a chosen status":          {status.Error(codes.PermissionDenied, "not yours"), codes.PermissionDenied, "not yours"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := handlertest.Folder(t)
			start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, handler.Poll{
				List: func(context.Context, handler.Request) ([]*handler.Device, error) { return nil, test.err },
			})
			_, err := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "").Recv()
			require.Equal(t, test.code, status.Code(err))
			require.Equal(t, test.message, status.Convert(err).Message())
		})
	}
}

func TestHealthFollowsSocketAndRegistration(t *testing.T) {
	directory := handlertest.Folder(t)
	health, _ := start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, told(nil))
	require.Equal(t, 503, get(t, health, "/readyz"))
	akri := handlertest.NewRegistrar()
	akri.Serve(t, directory)
	handlertest.Receive(t, akri.Requests)
	require.Eventually(t, func() bool { return get(t, health, "/readyz") == 200 }, handlertest.Patience, time.Millisecond)
	require.Equal(t, 200, get(t, health, "/healthz"))
}

func TestImpossibleSettingsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		name  string
		flags handler.Flags
		want  string
	}{
		"a name that is a path":  {"../x", handler.Flags{DiscoveryHandlersDirectory: "/tmp"}, "handler name"},
		"no name":                {"", handler.Flags{DiscoveryHandlersDirectory: "/tmp"}, "handler name"},
		"a relative folder":      {"x", handler.Flags{DiscoveryHandlersDirectory: "tmp"}, "absolute path"},
		"an address that is not": {"x", handler.Flags{DiscoveryHandlersDirectory: "/tmp", PodIP: "here"}, "--pod-ip"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := handler.New(handler.Identity{Name: test.name}, test.flags, told(nil), handlertest.Env(t))
			require.ErrorContains(t, err, test.want)
		})
	}
}
