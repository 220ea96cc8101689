package opcua_test

import (
	"context"
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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/libs/listentest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	handlerv1 "akri.sh/proto/akri/handler/v1"
	opcua "akri.sh/services/handler-opcua"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a running handler.
type process struct {
	registration *handlertest.Registration
	metrics      prometheus.Gatherer
}

// maxPerHost is the limit of servers of one host: all servers of the tests are on loopback.
const maxPerHost = 8

func run(t *testing.T, patience time.Duration) process {
	t.Helper()
	registry := prometheus.NewRegistry()
	registration := handlertest.Run(t, func(flags handler.Flags, env service.Env) (*handler.Server, error) {
		env.Metrics = registry
		return opcua.New(opcua.Config{
			Flags: flags, Interval: 20 * time.Millisecond, DialTimeout: time.Second, Timeout: time.Second, Patience: patience, MaxPerHost: maxPerHost,
		}, env)
	})
	return process{registration, registry}
}

func (p process) discover(t *testing.T, details string) handlertest.Stream {
	t.Helper()
	return handlertest.Discover(t, 2*handlertest.Timeout, p.registration.GetEndpoint(), details)
}

// failures returns the number of failed FindServers requests.
func (p process) failures(t *testing.T) int {
	t.Helper()
	families, err := p.metrics.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "akri_opcua_questions_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == "failed" {
				return int(metric.GetCounter().GetValue())
			}
		}
	}
	require.FailNow(t, "metric not found")
	return 0
}

// details returns the discoveryDetails with these URLs.
func details(urls ...string) string {
	return fmt.Sprintf("opcuaDiscoveryMethod: {standard: {discoveryUrls: ['%s']}}\n", strings.Join(urls, "', '"))
}

// devices receives the next list and returns the properties by device id.
func devices(t *testing.T, stream handlertest.Stream) map[string]map[string]string {
	t.Helper()
	properties := map[string]map[string]string{}
	for id, device := range handlertest.Devices(t, stream) {
		require.Equal(t, id, device.GetProperties()["OPCUA_DISCOVERY_URL"])
		properties[id] = device.GetProperties()
	}
	return properties
}

func ids(t *testing.T, stream handlertest.Stream) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(devices(t, stream)))
}

func TestServerIsADeviceWithProperties(t *testing.T) {
	process := run(t, time.Hour)
	require.Equal(t, "opcua", process.registration.GetName())
	require.True(t, process.registration.GetShared())
	plc := serve(t, "")
	plc.set(nil, app("plc", ua.ApplicationTypeServer, plc.URL))
	require.Equal(t, map[string]map[string]string{plc.URL: {
		"OPCUA_DISCOVERY_URL": plc.URL, "OPCUA_APPLICATION_URI": "urn:plc", "OPCUA_APPLICATION_NAME": "plc",
		"OPCUA_SECURITY_POLICIES": "Basic256Sha256,None",
	}}, devices(t, process.discover(t, details(plc.URL))))
}

func TestDiscoveryServerReturnsItsServers(t *testing.T) {
	process := run(t, time.Hour)
	registered, multicast := serve(t, ""), serve(t, "")
	registered.set(nil, app("registered", ua.ApplicationTypeClientAndServer, registered.URL))
	multicast.set(nil, app("multicast", ua.ApplicationTypeServer, multicast.URL))
	lds := serve(t, "")
	lds.set([]string{multicast.URL, registered.URL, "opc.tcp://127.0.0.1:1/absent"},
		app("lds", ua.ApplicationTypeDiscoveryServer, lds.URL),
		app("registered", ua.ApplicationTypeClientAndServer, registered.URL),
		app("hmi", ua.ApplicationTypeClient, "opc.tcp://127.0.0.1:2/"),
		app("elsewhere", ua.ApplicationTypeServer, "opc.tcp://plc.invalid:4855/line"))
	stream := process.discover(t, details(lds.URL, registered.URL))
	require.ElementsMatch(t, []string{registered.URL, multicast.URL, "opc.tcp://" + listentest.Host() + ":4855/line"}, ids(t, stream))

	stream = process.discover(t, details(lds.URL)+"applicationNames: {action: Exclude, items: [multicast, elsewhere]}")
	require.Equal(t, []string{registered.URL}, ids(t, stream))
	stream = process.discover(t, details(lds.URL)+"applicationNames: {items: [multicast]}")
	require.Equal(t, []string{multicast.URL}, ids(t, stream))
}

// The servers that a misspelt name does not select are explained, although one does not respond.
func TestClosestServers(t *testing.T) {
	process := run(t, time.Hour)
	press, robot := serve(t, ""), serve(t, "")
	press.set(nil, app("Press 1", ua.ApplicationTypeServer, press.URL))
	robot.set(nil, app("Robot", ua.ApplicationTypeServer, robot.URL))
	silent := serveTCP(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	client := handlerv1.NewExplainServiceClient(rpctest.Dial(t, "unix://"+process.registration.GetEndpoint()))
	explain := func(details string) ([]*handler.NearMiss, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		response, err := client.Explain(ctx, &handlerv1.ExplainRequest{DiscoveryDetails: details})
		return response.GetClosest(), err
	}

	urls := details(press.URL, robot.URL, silent)
	closest, err := explain(urls + "applicationNames: {items: [press 1, Oven]}\n")
	require.NoError(t, err)
	require.Len(t, closest, 1)
	require.Equal(t, press.URL, closest[0].GetDevice())
	require.Equal(t, `applicationNames: Include ["press 1", "Oven"]`, closest[0].GetMissed())
	require.Equal(t, "Press 1", closest[0].GetValue())
	require.Equal(t, []string{press.URL}, ids(t, process.discover(t, closest[0].GetCorrectedDetails())))

	closest, err = explain(urls + "applicationNames: {items: [Oven]}\n")
	require.NoError(t, err)
	require.Len(t, closest, 1)
	require.EqualValues(t, 2, closest[0].GetCount())
	require.ElementsMatch(t, []string{"Press 1", "Robot"}, closest[0].GetMismatches()[0].GetFound())
	require.Empty(t, closest[0].GetCorrectedDetails())

	closest, err = explain(urls)
	require.NoError(t, err)
	require.Empty(t, closest)
	_, err = explain("applicationNames: {items: [a]}")
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// Finding 10: a discovery server cannot make the handler connect to other networks, and a server
// that announces an address of another network gets the queried host. One host is a limited number
// of devices.
func TestHostileServers(t *testing.T) {
	process := run(t, time.Hour)
	hostile, self := serve(t, ""), serve(t, "")
	self.set(nil, app("self", ua.ApplicationTypeServer, "opc.tcp://203.0.113.9:4840/x"))
	applications := []*ua.ApplicationDescription{app("hostile", ua.ApplicationTypeDiscoveryServer, hostile.URL),
		app("foreign", ua.ApplicationTypeServer, "opc.tcp://203.0.113.9:4855/"),
		app("metadata", ua.ApplicationTypeServer, "opc.tcp://169.254.169.254:80/")}
	for i := range 2 * maxPerHost {
		applications = append(applications, app(fmt.Sprint("many", i), ua.ApplicationTypeServer, fmt.Sprintf("opc.tcp://127.0.0.2:%d/", 1000+i)))
	}
	hostile.set([]string{"opc.tcp://203.0.113.9:22/"}, applications...)
	want := []string{strings.TrimSuffix(self.URL, "/") + "/x"}
	for i := range maxPerHost {
		want = append(want, fmt.Sprintf("opc.tcp://127.0.0.2:%d/", 1000+i))
	}
	require.ElementsMatch(t, want, ids(t, process.discover(t, details(hostile.URL, self.URL))))
}

func TestBrokenServersHideNoOther(t *testing.T) {
	process := run(t, time.Hour)
	plc := serve(t, "")
	plc.set(nil, app("plc", ua.ApplicationTypeServer, plc.URL))
	silent := serveTCP(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	garbage := serveTCP(t, func(conn net.Conn) { _, _ = conn.Write([]byte(strings.Repeat("HTTP/1.1 400 no\r\n", 100))) })
	huge := serveTCP(t, func(conn net.Conn) {
		_, _ = conn.Write([]byte("ACKF\xff\xff\xff\xff"))
		_, _ = io.Copy(io.Discard, conn)
	})
	closed := "opc.tcp://" + listentest.Address(t) + "/"
	urls := []string{plc.URL, silent, garbage, huge, closed, "opc.tcp://nosuchhost.invalid:4840/"}
	require.Equal(t, []string{plc.URL}, ids(t, process.discover(t, details(urls...))))
}

func TestNameThatIsNotUTF8(t *testing.T) {
	process := run(t, time.Hour)
	plain, latin := serve(t, ""), serve(t, "")
	plain.set(nil, app("plain", ua.ApplicationTypeServer, plain.URL))
	latin.set(nil, app("Pr\xfcfstand", ua.ApplicationTypeServer, latin.URL))
	found := devices(t, process.discover(t, details(plain.URL, latin.URL)))
	require.Contains(t, found, plain.URL)
	require.Equal(t, "Pr\uFFFDfstand", found[latin.URL]["OPCUA_APPLICATION_NAME"])
}

// Several discovery servers return the same silent server. It gets one request, and no other in the
// next rounds.
func TestSilentServerGetsOneRequest(t *testing.T) {
	process := run(t, time.Hour)
	var connections atomic.Int32
	silent := serveTCP(t, func(conn net.Conn) { connections.Add(1); _, _ = io.Copy(io.Discard, conn) })
	urls := make([]string, 8)
	for i := range urls {
		lds := serve(t, "")
		lds.set([]string{silent}, app("lds", ua.ApplicationTypeDiscoveryServer, lds.URL))
		urls[i] = lds.URL
	}
	plc := serve(t, "")
	plc.set(nil, app("plc", ua.ApplicationTypeServer, plc.URL))
	require.Equal(t, []string{plc.URL}, ids(t, process.discover(t, details(append(urls, plc.URL)...))))
	awaitRequests(t, plc, 3)
	require.EqualValues(t, 1, connections.Load())
}

// awaitRequests waits until the server got n more FindServers requests.
func awaitRequests(t *testing.T, server *fakeServer, n int) {
	t.Helper()
	before := server.requestCount()
	require.Eventually(t, func() bool { return server.requestCount() >= before+n }, handlertest.Timeout, time.Millisecond)
}

func TestServerLeavesAndReturns(t *testing.T) {
	process := run(t, 0)
	plc := serve(t, "")
	description := app("plc", ua.ApplicationTypeServer, plc.URL)
	plc.set(nil, description)
	stream := process.discover(t, details(plc.URL))
	require.Equal(t, []string{plc.URL}, ids(t, stream))
	plc.stop()
	require.Empty(t, ids(t, stream))
	serve(t, strings.Trim(strings.TrimPrefix(plc.URL, "opc.tcp:"), "/"), description)
	require.Equal(t, []string{plc.URL}, ids(t, stream))
}

// A server that stops responding stays in the lists for --patience, which this test does not reach.
func TestServerStaysForPatience(t *testing.T) {
	process := run(t, time.Hour)
	plc, lds := serve(t, ""), serve(t, "")
	plc.set(nil, app("plc", ua.ApplicationTypeServer, plc.URL))
	self := app("lds", ua.ApplicationTypeDiscoveryServer, lds.URL)
	lds.set(nil, self)
	stream := process.discover(t, details(plc.URL, lds.URL))
	require.Equal(t, []string{plc.URL}, ids(t, stream))
	plc.stop()
	require.Eventually(t, func() bool { return process.failures(t) >= 3 }, handlertest.Timeout, time.Millisecond)
	lds.set(nil, self, app("a", ua.ApplicationTypeServer, "opc.tcp://127.0.0.1:1/a"))
	require.ElementsMatch(t, []string{plc.URL, "opc.tcp://127.0.0.1:1/a"}, ids(t, stream), "no list without plc before")
}

// Only a change of the servers sends a new list.
func TestListIsSentWhenServersChange(t *testing.T) {
	process := run(t, time.Hour)
	lds := serve(t, "")
	self := app("lds", ua.ApplicationTypeDiscoveryServer, lds.URL)
	a := app("a", ua.ApplicationTypeServer, "opc.tcp://127.0.0.1:1/a")
	b := app("b", ua.ApplicationTypeServer, "opc.tcp://127.0.0.1:1/b")
	lds.set(nil, self, a)
	stream := process.discover(t, details(lds.URL))
	require.Equal(t, []string{"opc.tcp://127.0.0.1:1/a"}, ids(t, stream))
	awaitRequests(t, lds, 3)
	lds.set(nil, self, a, b, a)
	require.Equal(t, []string{"opc.tcp://127.0.0.1:1/a", "opc.tcp://127.0.0.1:1/b"}, ids(t, stream), "no list in between")
}

func TestInvalidDetailsAreRejected(t *testing.T) {
	process := run(t, time.Hour)
	for given, messages := range map[string][]string{
		"":                               {"opcuaDiscoveryMethod: required"},
		"opcuaDiscoveryMethod: {}":       {"standard: required"},
		"opcuaDiscoveryMethod: {lds: x}": {`unknown key "lds"`},
		details("tcp://a:1", "opc.tcp://b"): {
			`discoveryUrls[0]: "tcp://a:1"`, `discoveryUrls[1]: "opc.tcp://b" must have a port`,
		},
		"applicationNames: {action: Only}\n" + details("opc.tcp://a:1"): {
			"items: required", `"Only" must be Include or Exclude`,
		},
		details(slices.Repeat([]string{"opc.tcp://a:1"}, 257)...): {"at most 256"},
	} {
		_, err := process.discover(t, given).Recv()
		require.Equal(t, codes.InvalidArgument, status.Code(err), given)
		for _, message := range messages {
			require.ErrorContains(t, err, message)
		}
	}
}

// Without URLs, the handler queries the discovery server on its host.
func TestDiscoveryURLsAreOptional(t *testing.T) {
	_ = ids(t, run(t, time.Hour).discover(t, "opcuaDiscoveryMethod: {standard: {}}"))
}

func TestInvalidFlagsAreRejected(t *testing.T) {
	_, err := opcua.New(opcua.Config{Patience: -1}, service.Env{})
	for _, flag := range []string{"--interval", "--dial-timeout", "--timeout", "--patience"} {
		require.ErrorContains(t, err, flag)
	}
}

// The webhook must accept and refuse the same details.
func TestDetailsAreThoseOfTheWebhook(t *testing.T) {
	handlertest.CheckDetails(t, run(t, time.Hour).registration.GetEndpoint())
}
