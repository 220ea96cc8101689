package opcua_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/libs/service"
	opcua "akri.sh/services/handler-opcua"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts the handler and returns how it registered.
func run(t *testing.T, patience time.Duration) *handlertest.Registration {
	t.Helper()
	return handlertest.Run(t, func(flags handler.Flags, env service.Env) (*handler.Server, error) {
		return opcua.New(opcua.Config{
			Flags: flags, Interval: 20 * time.Millisecond, DialTimeout: time.Second, Timeout: time.Second, Patience: patience,
		}, env)
	})
}

// ask is what a Configuration that lists the URLs asks for.
func ask(urls ...string) string {
	return fmt.Sprintf("opcuaDiscoveryMethod: {standard: {discoveryUrls: ['%s']}}\n", strings.Join(urls, "', '"))
}

func discover(t *testing.T, endpoint, details string) handlertest.Stream {
	t.Helper()
	return handlertest.Discover(t, 2*handlertest.Patience, endpoint, details)
}

// devices are the properties by id of the next list.
func devices(t *testing.T, stream handlertest.Stream) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	for id, device := range handlertest.Devices(t, stream) {
		require.Equal(t, id, device.GetProperties()["OPCUA_DISCOVERY_URL"])
		found[id] = device.GetProperties()
	}
	return found
}

func ids(t *testing.T, stream handlertest.Stream) []string {
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

func TestANameThatIsNoTextHidesNobody(t *testing.T) {
	request := run(t, time.Hour)
	plain, latin := serve(t, 0), serve(t, 0)
	plain.says(nil, app("plain", ua.ApplicationTypeServer, plain.URL))
	latin.says(nil, app("Pr\xfcfstand", ua.ApplicationTypeServer, latin.URL))
	found := devices(t, discover(t, request.GetEndpoint(), ask(plain.URL, latin.URL)))
	require.Contains(t, found, plain.URL)
	require.Equal(t, "Pr\uFFFDfstand", found[latin.URL]["OPCUA_APPLICATION_NAME"])
}

func TestASilentServerIsAskedOnceHoweverManyHeardOfIt(t *testing.T) {
	request := run(t, time.Hour)
	var asked atomic.Int32
	silent := odd(t, func(conn net.Conn) { asked.Add(1); _, _ = io.Copy(io.Discard, conn) })
	urls := make([]string, 8)
	for i := range urls {
		lds := serve(t, 0)
		lds.says([]string{silent}, app("lds", ua.ApplicationTypeDiscoveryServer, lds.URL))
		urls[i] = lds.URL
	}
	plc := serve(t, 0)
	plc.says(nil, app("plc", ua.ApplicationTypeServer, plc.URL))
	require.Equal(t, []string{plc.URL}, ids(t, discover(t, request.GetEndpoint(), ask(append(urls, plc.URL)...))))
	rounds := plc.asked()
	require.Eventually(t, func() bool { return plc.asked() > rounds+2 }, handlertest.Patience, time.Millisecond)
	require.EqualValues(t, 1, asked.Load(), "nor again soon")
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
