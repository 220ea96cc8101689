package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/admin"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	"akri.sh/services/agent"
	instancewriter "akri.sh/services/instance-writer"
)

const (
	soon = 20 * time.Second
	tick = 5 * time.Millisecond
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

// world is one node with an agent, and all that it talks to: a real API server, a real instance-writer, somebody who is a kubelet.
type world struct {
	t       *testing.T
	folder  string
	node    string
	config  agent.Config
	kubelet *kubelet
	metrics *prometheus.Registry
	health  *admin.Health
	// stop ends the agent and returns what Run did.
	stop func() error
}

func newWorld(t *testing.T, handlers string) *world {
	t.Helper()
	noLeaks(t)
	folder, err := os.MkdirTemp("", "a") //nolint:usetesting // t.TempDir has the name of the test in it, and sockets need short paths
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	w := &world{t: t, folder: folder, node: filepath.Base(folder), kubelet: &kubelet{resources: map[string]bool{}}}
	w.node = "node-" + w.node[1:]
	rpctest.ServeAt(t, w.address("kubelet.sock"), func(r grpc.ServiceRegistrar) { pluginapi.RegisterRegistrationServer(r, w.kubelet) })
	w.configure(t, handlers, w.startWriter())
	return w
}

// noLeaks fails the test if it leaves goroutines behind, after all that it cleans up.
func noLeaks(t *testing.T) {
	t.Helper()
	current := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, current, // connections to the API server that are kept for the next test
			goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http/internal/http2.(*ClientConn).readLoop"))
	})
}

func (w *world) path(name string) string    { return filepath.Join(w.folder, name) }
func (w *world) address(name string) string { return "unix://" + w.path(name) }

// configure reads the flags as the program does: each socket is the test's own.
func (w *world) configure(t *testing.T, handlers, writer string) {
	t.Helper()
	t.Setenv("AGENT_NODE_NAME", w.node)
	t.Setenv("DISCOVERY_HANDLERS_DIRECTORY", w.folder)
	parser, err := kong.New(&w.config, kong.DefaultEnvars("AKRI"))
	require.NoError(t, err)
	_, err = parser.Parse([]string{
		"--handlers=" + handlers,
		"--registrar-socket=" + w.address("r"), "--registrar-state-file=" + w.path("state.json"),
		"--discovery-operator-socket=" + w.address("o"), "--discovery-operator-registrar=" + w.address("r"),
		"--discovery-operator-instance-writer=" + writer,
		"--config-plugin-allocator-socket=" + w.address("c"),
		"--device-plugin-host-kubelet-dir=" + w.folder, "--device-plugin-host-pod-resources=" + w.path("pods"),
		"--device-plugin-host-discovery-operator=" + w.address("o"), "--device-plugin-host-allocator=" + w.address("c"),
		"--device-plugin-host-instance-writer=" + writer,
		"--debug-echo-availability-file=" + w.path("availability"), "--onvif-interfaces=lo",
	})
	require.NoError(t, err)
	w.config.DiscoveryOperator.REST = server.Config()
}

// startWriter starts an instance-writer and returns its address.
func (w *world) startWriter() string {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	writer, err := instancewriter.New(instancewriter.Config{Flags: kube.Flags{Kubeconfig: kubeconfig(w.t)}, NodeGrace: time.Hour}, env(w.t))
	require.NoError(w.t, err)
	stop := background(func(ctx context.Context) error { return writer.Serve(ctx, listener) })
	w.t.Cleanup(func() { require.NoError(w.t, stop()) })
	address := listener.Addr().String()
	_, err = healthv1.NewHealthClient(rpctest.Dial(w.t, address)).Check(w.t.Context(), &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	require.NoError(w.t, err)
	return address
}

func (w *world) startAgent() {
	w.t.Helper()
	own := env(w.t)
	s, err := agent.New(w.config, own)
	require.NoError(w.t, err)
	w.metrics, w.health = own.Metrics.(*prometheus.Registry), own.Health
	w.stop = background(s.Run)
	w.t.Cleanup(func() { _ = w.stop() })
}

func awaitReady(t *testing.T, health *admin.Health) {
	t.Helper()
	require.Eventually(t, func() bool { return health.Ready(t.Context()) == nil }, soon, tick)
}

// joins makes the node one of the cluster, which instance-writer asks for.
func (w *world) joins() {
	w.t.Helper()
	nodes, err := kube.Nodes(server.Config())
	require.NoError(w.t, err)
	made, err := nodes.In("").Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = nodes.In("").UpdateStatus(w.t.Context(), made, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// value is that of the first series of a metric whose label is as wanted.
func (w *world) value(metric, label, want string) (float64, error) {
	families, err := w.metrics.Gather()
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

// background runs until stop, which returns what it returned; so does every stop that follows.
func background(run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(soon):
			return errors.New("it does not stop")
		}
	})
}

func kubeconfig(t *testing.T) string {
	t.Helper()
	access := server.Config()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: access.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: access.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// kubelet remembers which resources were offered to it.
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
