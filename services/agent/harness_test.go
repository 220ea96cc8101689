package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/admin"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	"akri.sh/services/agent"
	instancewriter "akri.sh/services/instance-writer"
)

const (
	timeout = time.Minute
	tick    = 5 * time.Millisecond
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

// harness is a node with an agent, a real API server, a real instance-writer and a fake kubelet.
type harness struct {
	t         *testing.T
	directory string
	node      string
	config    agent.Config
	kubelet   *kubelet
	metrics   *prometheus.Registry
	health    *admin.Health
	// connections counts those that the agent opened to instance-writer.
	connections atomic.Int32
	// stop stops the agent and returns the result of Run.
	stop func() error
}

func newHarness(t *testing.T, handlers string, flags ...string) *harness {
	t.Helper()
	kubetest.NoLeaks(t)
	directory, err := os.MkdirTemp("", "a") //nolint:usetesting // paths of t.TempDir are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(directory)) })
	h := &harness{t: t, directory: directory, node: filepath.Base(directory), kubelet: &kubelet{resources: map[string]bool{}}}
	h.node = "node-" + h.node[1:]
	rpctest.ServeAt(t, h.address("kubelet.sock"), func(r grpc.ServiceRegistrar) { pluginapi.RegisterRegistrationServer(r, h.kubelet) })
	h.configure(t, handlers, append(h.startWriter(), flags...)...)
	return h
}

func (h *harness) path(name string) string    { return filepath.Join(h.directory, name) }
func (h *harness) address(name string) string { return "unix://" + h.path(name) }

// configure parses the flags like the agent does. All sockets are in the directory of the test.
func (h *harness) configure(t *testing.T, handlers string, flags ...string) {
	t.Helper()
	t.Setenv("AGENT_NODE_NAME", h.node)
	t.Setenv("DISCOVERY_HANDLERS_DIRECTORY", h.directory)
	parser, err := kong.New(&h.config, kong.DefaultEnvars("AKRI"))
	require.NoError(t, err)
	_, err = parser.Parse(append([]string{
		"--handlers=" + handlers,
		"--registrar-socket=" + h.address("r"), "--registrar-state-file=" + h.path("state.json"),
		"--discovery-operator-socket=" + h.address("o"), "--discovery-operator-registrar=" + h.address("r"),
		"--config-plugin-allocator-socket=" + h.address("c"),
		"--device-plugin-host-kubelet-dir=" + h.directory, "--device-plugin-host-pod-resources=" + h.path("pods"),
		"--device-plugin-host-discovery-operator=" + h.address("o"), "--device-plugin-host-allocator=" + h.address("c"),
		"--dra-kubelet-plugin-kubelet-dir=" + h.directory, "--dra-kubelet-plugin-pod-resources=" + h.path("pods"),
		"--dra-kubelet-plugin-socket=" + h.address("p"), "--dra-kubelet-plugin-cdi-dir=" + h.path("cdi"),
		"--dra-kubelet-plugin-discovery-operator=" + h.address("o"),
		"--debug-echo-availability-file=" + h.path("availability"), "--onvif-interfaces=lo",
	}, flags...))
	require.NoError(t, err)
}

// startWriter starts an instance-writer and returns the flags by which the components call it.
func (h *harness) startWriter() (flags []string) {
	h.t.Helper()
	client, err := kubernetes.NewForConfig(server.Config())
	require.NoError(h.t, err)
	ctx := context.WithoutCancel(h.t.Context())
	h.createNode()
	identities, err := identitytest.New(ctx, client, h.t.TempDir())
	require.NoError(h.t, err)
	identity, err := identities.Of(ctx, identitytest.Agent, h.node)
	require.NoError(h.t, err)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(h.t, err)
	var config instancewriter.Config
	parser, err := kong.New(&config)
	require.NoError(h.t, err)
	_, err = parser.Parse([]string{"--namespace", identitytest.Namespace, "--node-grace=1h"})
	require.NoError(h.t, err)
	config.REST = server.Config()
	own := env(h.t)
	writer, err := instancewriter.New(config, own)
	require.NoError(h.t, err)
	counting := &countingListener{listener, &h.connections}
	stop := background(func(ctx context.Context) error { return writer.Serve(ctx, counting) })
	h.t.Cleanup(func() { require.NoError(h.t, stop()) })
	awaitReady(h.t, own.Health)
	require.NoError(h.t, identities.AwaitCA(ctx))

	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(h.t, err)
	for _, component := range []string{"discovery-operator", "device-plugin-host", "dra-kubelet-plugin"} {
		prefix := "--" + component + "-instance-writer"
		flags = append(flags, prefix+"=localhost:"+port, prefix+"-ca="+identity.CAFile, prefix+"-token="+identity.TokenFile)
	}
	return flags
}

// countingListener counts the connections that it accepts.
type countingListener struct {
	net.Listener

	accepted *atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return conn, err
}

func (h *harness) startAgent() {
	h.t.Helper()
	own := env(h.t)
	s, err := agent.New(h.config, own)
	require.NoError(h.t, err)
	h.metrics, h.health = own.Metrics.(*prometheus.Registry), own.Health
	h.stop = background(s.Run)
	h.t.Cleanup(func() { _ = h.stop() })
}

func awaitReady(t *testing.T, health *admin.Health) {
	t.Helper()
	require.Eventually(t, func() bool { return health.Ready(t.Context()) == nil }, timeout, tick)
}

// createNode creates the Node object, which instance-writer requires.
func (h *harness) createNode() {
	h.t.Helper()
	nodes, err := kube.Nodes(server.Config())
	require.NoError(h.t, err)
	made, err := nodes.In("").Create(h.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.node}}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = nodes.In("").UpdateStatus(h.t.Context(), made, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

// value returns the value of the first series of a metric with the label value.
func (h *harness) value(metric, label, want string) (float64, error) {
	families, err := h.metrics.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			for _, pair := range series.GetLabel() {
				if family.GetName() == metric && pair.GetName() == label && pair.GetValue() == want {
					return series.GetGauge().GetValue() + series.GetCounter().GetValue(), nil
				}
			}
		}
	}
	return 0, fmt.Errorf("no %s with %s=%q", metric, label, want)
}

func env(t *testing.T) service.Env {
	return service.Env{Log: zaptest.NewLogger(t), Metrics: service.NewRegistry(), Health: &admin.Health{}}
}

// background starts run and returns a function that stops it and returns its result.
func background(run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(timeout):
			return errors.New("timeout: Run did not return")
		}
	})
}

// kubelet is a fake kubelet that records the registered resources.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer

	mu        sync.Mutex
	resources map[string]bool
}

func (k *kubelet) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resources[request.GetResourceName()] = true
	return &pluginapi.Empty{}, nil
}

func (k *kubelet) offered(resource string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resources[resource]
}
