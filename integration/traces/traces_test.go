// Package traces_test tests the traces of the services with an OpenTelemetry Collector.
package traces_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/process"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const timeout = time.Minute

// span is a span in the JSON encoding of OTLP.
type span struct {
	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string `json:"name"`
	service      string
}

// collector receives the spans that an OpenTelemetry Collector has received.
type collector struct {
	mu    sync.Mutex
	spans []span
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	var content struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []struct {
					Key   string
					Value struct{ StringValue string }
				}
			}
			ScopeSpans []struct{ Spans []span }
		}
	}
	body, err := io.ReadAll(request.Body)
	if err == nil {
		err = json.Unmarshal(body, &content)
	}
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range content.ResourceSpans {
		service := ""
		for _, attribute := range resource.Resource.Attributes {
			if attribute.Key == "service.name" {
				service = attribute.Value.StringValue
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, received := range scope.Spans {
				received.service = service
				c.spans = append(c.spans, received)
			}
		}
	}
}

// chain returns whether there is a trace whose spans are these, each a child of the one before.
// Each is `service: name`.
func (c *collector) chain(names ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	parents := []span{{}}
	for _, name := range names {
		var children []span
		for _, parent := range parents {
			for _, s := range c.spans {
				sameTrace := parent.TraceID == "" || parent.TraceID == s.TraceID
				if s.service+": "+s.Name == name && s.ParentSpanID == parent.SpanID && sameTrace {
					children = append(children, s)
				}
			}
		}
		parents = children
	}
	return len(parents) > 0
}

func (c *collector) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := ""
	for _, s := range c.spans {
		text += fmt.Sprintf("%s: %s (trace %s, span %s, parent %s)\n", s.service, s.Name, s.TraceID, s.SpanID, s.ParentSpanID)
	}
	return text
}

func (c *collector) await(t *testing.T, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for !c.chain(names...) {
		select {
		case <-ctx.Done():
			require.FailNow(t, "the trace is missing", "expected %q, received\n%s", names, c)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// start starts an OpenTelemetry Collector and returns its address for OTLP over gRPC.
func (c *collector) start(t *testing.T) string {
	t.Helper()
	receiver := httptest.NewServer(c)
	t.Cleanup(receiver.Close)
	bin, err := binaries.Ensure(t.Context(), func(step string) { t.Log(step) }, "otelcol")
	require.NoError(t, err)
	address, err := process.FreeAddress(t.Context())
	require.NoError(t, err)
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}
exporters: {otlp_http: {endpoint: %q, encoding: json, compression: none}}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}
  telemetry: {metrics: {level: none}, logs: {level: warn}}
`, address, receiver.URL), 0o600))
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "otelcol"), config)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() }) // the context of the test has ended
	return address
}

// node are the services of a node, as processes.
type node struct {
	dir        string
	registered chan *pluginapi.RegisterRequest
}

func (n *node) socket(name string) string { return "unix://" + filepath.Join(n.dir, name+".sock") }

func startNode(t *testing.T, collector string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "tr") //nolint:usetesting // socket paths must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{dir: dir, registered: make(chan *pluginapi.RegisterRequest, 10)}
	stop, err := process.ServeKubelet(t.Context(), dir, n.registered)
	require.NoError(t, err)
	t.Cleanup(stop)

	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + collector, "OTEL_BSP_SCHEDULE_DELAY=100"}
	run := func(service string, flags ...string) {
		started, err := process.StartWithEnv(context.WithoutCancel(t.Context()), nil, env, service, append(flags, "--admin-address=", "--log-level=error")...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = started.Stop() })
	}
	run("registrar", "--handlers-dir="+dir, "--state-file="+filepath.Join(dir, "state.json"), "--socket="+n.socket("r"))
	writer, err := process.StartWriter(context.WithoutCancel(t.Context()), server, env)
	require.NoError(t, err)
	t.Cleanup(func() { _ = writer.Stop() })
	as := func(account string) []string {
		flags, err := writer.Flags(t.Context(), account, "node-a")
		require.NoError(t, err)
		return flags
	}
	run("discovery-operator", append(as(identitytest.DiscoveryOperator),
		"--node-name=node-a", "--socket="+n.socket("o"), "--registrar="+n.socket("r"))...)
	run("config-plugin-allocator", "--socket="+n.socket("a"))
	run("device-plugin-host", append(as(identitytest.DevicePluginHost),
		"--node-name=node-a", "--kubelet-dir="+dir, "--pod-resources="+filepath.Join(dir, "none.sock"),
		"--discovery-operator="+n.socket("o"), "--allocator="+n.socket("a"))...)
	run("handler-debug-echo", "--discovery-handlers-directory="+dir)
	return n
}

// plugin returns the device plugin of a resource.
func (n *node) plugin(t *testing.T, resource string) pluginapi.DevicePluginClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for {
		select {
		case request := <-n.registered:
			if request.GetResourceName() != resource {
				continue
			}
			conn, err := grpc.NewClient("unix://"+filepath.Join(n.dir, request.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			return pluginapi.NewDevicePluginClient(conn)
		case <-ctx.Done():
			require.FailNow(t, "not registered", resource)
		}
	}
}

// TestTraces plugs in a device and allocates it.
func TestTraces(t *testing.T) {
	nodes, err := kube.Nodes(server.Config())
	require.NoError(t, err)
	_, err = nodes.In("").Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	configurations, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, nodes.In("").Delete(ctx, "node-a", metav1.DeleteOptions{}))
		require.NoError(t, configurations.In("default").Delete(ctx, "echo", metav1.DeleteOptions{}))
	})
	received := &collector{}
	n := startNode(t, received.start(t))
	_, err = configurations.In("default").Create(t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"},
		Spec: akriv0.ConfigurationSpec{
			DiscoveryHandler: akriv0.DiscoveryHandler{Name: "debugEcho", DiscoveryDetails: "descriptions: [foo]\n"},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	received.await(t, "discovery-operator: receive list of devices", "discovery-operator: report devices",
		"instance-writer: apply report", "instance-writer: write Instance")

	plugin := n.plugin(t, akriv0.ResourceName("echo"))
	_, err = plugin.Allocate(t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"0"}}},
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
	received.await(t, "device-plugin-host: v1beta1.DevicePlugin/Allocate", "device-plugin-host: akri.instance.v1.InstanceService/ReserveSlots",
		"instance-writer: akri.instance.v1.InstanceService/ReserveSlots", "instance-writer: write Instance")
	received.await(t, "device-plugin-host: v1beta1.DevicePlugin/Allocate",
		"device-plugin-host: akri.allocation.v1.ConfigurationAllocatorService/Allocate",
		"config-plugin-allocator: akri.allocation.v1.ConfigurationAllocatorService/Allocate")
}
