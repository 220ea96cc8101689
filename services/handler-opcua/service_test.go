package opcua_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
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
	opcua "akri.sh/services/handler-opcua"
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

// run starts the handler beside a registrar and returns how it registered.
func run(t *testing.T, patience time.Duration) *discoveryv0.RegisterDiscoveryHandlerRequest {
	t.Helper()
	directory, err := os.MkdirTemp("", "o") //nolint:usetesting // the folders of t.TempDir have long names
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	akri := &registrar{requests: make(chan *discoveryv0.RegisterDiscoveryHandlerRequest, 8)}
	rpctest.ServeAt(t, "unix://"+filepath.Join(directory, "agent-registration.sock"), func(server grpc.ServiceRegistrar) {
		discoveryv0.RegisterRegistrationServer(server, akri)
	})
	s, err := opcua.New(opcua.Config{
		Flags:    handler.Flags{DiscoveryHandlersDirectory: directory},
		Interval: 20 * time.Millisecond, DialTimeout: time.Second, Timeout: time.Second, Patience: patience,
	}, service.Env{Log: zaptest.NewLogger(t), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return <-akri.requests
}

// ask is what a Configuration that lists the URLs asks for.
func ask(urls ...string) string {
	return fmt.Sprintf("opcuaDiscoveryMethod: {standard: {discoveryUrls: ['%s']}}\n", strings.Join(urls, "', '"))
}

func discover(t *testing.T, endpoint, details string) grpc.ServerStreamingClient[discoveryv0.DiscoverResponse] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	stream, err := discoveryv0.NewDiscoveryHandlerClient(rpctest.Dial(t, "unix://"+endpoint)).
		Discover(ctx, &discoveryv0.DiscoverRequest{DiscoveryDetails: details})
	require.NoError(t, err)
	return stream
}

// devices are the properties by id of the next list.
func devices(t *testing.T, stream grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]) map[string]map[string]string {
	t.Helper()
	response, err := stream.Recv()
	require.NoError(t, err)
	found := map[string]map[string]string{}
	for _, device := range response.GetDevices() {
		require.NotContains(t, found, device.GetId())
		require.Equal(t, device.GetId(), device.GetProperties()["OPCUA_DISCOVERY_URL"])
		found[device.GetId()] = device.GetProperties()
	}
	return found
}

func ids(t *testing.T, stream grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(devices(t, stream)))
}

func TestAServerIsADeviceWithItsProperties(t *testing.T) {
	request := run(t, time.Hour)
	require.Equal(t, "opcua", request.GetName())
	require.True(t, request.GetShared())
	plc := serve(t, 0)
	plc.says(nil, app("plc", ua.ApplicationTypeServer, plc.URL))
	require.Equal(t, map[string]map[string]string{plc.URL: {
		"OPCUA_DISCOVERY_URL": plc.URL, "OPCUA_APPLICATION_URI": "urn:plc", "OPCUA_APPLICATION_NAME": "plc",
		"OPCUA_SECURITY_POLICIES": "Basic256Sha256,None",
	}}, devices(t, discover(t, request.GetEndpoint(), ask(plc.URL))))
}

func TestADiscoveryServerTellsOfAllThatItKnows(t *testing.T) {
	request := run(t, time.Hour)
	registered, heard := serve(t, 0), serve(t, 0)
	registered.says(nil, app("registered", ua.ApplicationTypeClientAndServer, registered.URL))
	heard.says(nil, app("heard", ua.ApplicationTypeServer, heard.URL))
	lds := serve(t, 0)
	lds.says([]string{heard.URL, registered.URL, "opc.tcp://127.0.0.1:1/nobody"},
		app("lds", ua.ApplicationTypeDiscoveryServer, lds.URL), app("registered", ua.ApplicationTypeClientAndServer, registered.URL),
		app("hmi", ua.ApplicationTypeClient, "opc.tcp://127.0.0.1:2/"),
		app("elsewhere", ua.ApplicationTypeServer, "opc.tcp://plc.invalid:4855/line"))
	stream := discover(t, request.GetEndpoint(), ask(lds.URL, registered.URL))
	require.ElementsMatch(t, []string{registered.URL, heard.URL, "opc.tcp://127.0.0.1:4855/line"}, ids(t, stream))

	stream = discover(t, request.GetEndpoint(), ask(lds.URL)+"applicationNames: {action: Exclude, items: [heard, elsewhere]}")
	require.Equal(t, []string{registered.URL}, ids(t, stream))
	stream = discover(t, request.GetEndpoint(), ask(lds.URL)+"applicationNames: {items: [heard]}")
	require.Equal(t, []string{heard.URL}, ids(t, stream))
}

func TestServersThatDoNotAnswerHarmNobody(t *testing.T) {
	request := run(t, time.Hour)
	plc := serve(t, 0)
	plc.says(nil, app("plc", ua.ApplicationTypeServer, plc.URL))
	silent := odd(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	garbage := odd(t, func(conn net.Conn) { _, _ = conn.Write([]byte(strings.Repeat("HTTP/1.1 400 no\r\n", 100))) })
	huge := odd(t, func(conn net.Conn) {
		_, _ = conn.Write([]byte("ACKF\xff\xff\xff\xff"))
		_, _ = io.Copy(io.Discard, conn)
	})
	urls := []string{
		plc.URL, silent, garbage, huge, fmt.Sprintf("opc.tcp://127.0.0.1:%d/", freePort(t)), "opc.tcp://nobody.invalid:4840/",
	}
	require.Equal(t, []string{plc.URL}, ids(t, discover(t, request.GetEndpoint(), ask(urls...))))
}

func TestAServerThatStopsLeavesAndComesBack(t *testing.T) {
	request := run(t, 300*time.Millisecond)
	plc := serve(t, 0)
	known := app("plc", ua.ApplicationTypeServer, plc.URL)
	plc.says(nil, known)
	stream := discover(t, request.GetEndpoint(), ask(plc.URL))
	require.Equal(t, []string{plc.URL}, ids(t, stream))
	stopped := time.Now()
	plc.stop()
	require.Empty(t, ids(t, stream))
	require.Greater(t, time.Since(stopped), 200*time.Millisecond, "not at the first question without an answer")
	port, err := net.ResolveTCPAddr("tcp", strings.Trim(strings.TrimPrefix(plc.URL, "opc.tcp:"), "/"))
	require.NoError(t, err)
	serve(t, port.Port, known)
	require.Equal(t, []string{plc.URL}, ids(t, stream))
}

func TestAServerThatChangesIsFollowedAndOneThatDoesNotIsNotRepeated(t *testing.T) {
	request := run(t, time.Hour)
	lds := serve(t, 0)
	self, a, b := app("lds", ua.ApplicationTypeDiscoveryServer, lds.URL), app("a", ua.ApplicationTypeServer, "opc.tcp://127.0.0.1:1/a"), app("b", ua.ApplicationTypeServer, "opc.tcp://127.0.0.1:1/b")
	lds.says(nil, self, a)
	stream := discover(t, request.GetEndpoint(), ask(lds.URL))
	require.Equal(t, []string{"opc.tcp://127.0.0.1:1/a"}, ids(t, stream))
	asked := lds.asked()
	require.Eventually(t, func() bool { return lds.asked() > asked+2 }, 5*time.Second, time.Millisecond)
	lds.says(nil, self, a, b, a)
	require.Equal(t, []string{"opc.tcp://127.0.0.1:1/a", "opc.tcp://127.0.0.1:1/b"}, ids(t, stream), "nothing was sent between")
}

func TestUnusableDetailsAreRefused(t *testing.T) {
	request := run(t, time.Hour)
	for details, messages := range map[string][]string{
		"":                               {"opcuaDiscoveryMethod: required"},
		"opcuaDiscoveryMethod: {}":       {"standard: required"},
		"opcuaDiscoveryMethod: {lds: x}": {`unknown key "lds"`},
		ask("tcp://a:1", "opc.tcp://b"):  {`discoveryUrls[0]: "tcp://a:1"`, `discoveryUrls[1]: "opc.tcp://b": want a port`},
		"applicationNames: {action: Only}\n" + ask("opc.tcp://a:1"): {"items: required", `"Only" is neither`},
		ask(slices.Repeat([]string{"opc.tcp://a:1"}, 257)...):       {"at most 256"},
	} {
		_, err := discover(t, request.GetEndpoint(), details).Recv()
		require.Equal(t, codes.InvalidArgument, status.Code(err), details)
		for _, message := range messages {
			require.ErrorContains(t, err, message)
		}
	}
}

func TestWithoutURLsTheDiscoveryServerOfTheHostIsAsked(t *testing.T) {
	request := run(t, time.Hour)
	_ = ids(t, discover(t, request.GetEndpoint(), "opcuaDiscoveryMethod: {standard: {}}"))
}

func TestUnusableFlagsAreRefused(t *testing.T) {
	_, err := opcua.New(opcua.Config{Patience: -1}, service.Env{})
	for _, flag := range []string{"--interval", "--dial-timeout", "--timeout", "--patience"} {
		require.ErrorContains(t, err, flag)
	}
}
