package instancewriter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/admin"
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

const (
	within = 20 * time.Second
	every  = 10 * time.Millisecond
	space  = "default"
)

var api *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &api) }

// noLeaks fails the test if it leaves goroutines behind, after all that it cleans up.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	// client-go keeps idle connections for the whole process.
	idle := goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run")
	t.Cleanup(func() { goleak.VerifyNone(t, before, idle) })
}

// replica is one running instance-writer.
type replica struct {
	metrics *prometheus.Registry
	client  instancev1.InstanceServiceClient
	conn    *grpc.ClientConn
	kill    func()
}

func start(t testing.TB, grace time.Duration) *replica {
	t.Helper()
	return startAt(t, api.Config().Host, grace)
}

// startAt starts a replica that reaches the API server at an address.
func startAt(t testing.TB, host string, grace time.Duration) *replica {
	t.Helper()
	return startWith(t, instancewriter.Config{Flags: kube.Flags{Kubeconfig: kubeconfigOf(t, host)}, NodeGrace: grace}, zap.NewNop())
}

func startWith(t testing.TB, config instancewriter.Config, log *zap.Logger) *replica {
	t.Helper()
	metrics := prometheus.NewRegistry()
	writer, err := instancewriter.New(config, service.Env{Log: log, Metrics: metrics, Health: &admin.Health{}})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- writer.Serve(ctx, listener) }()
	conn, err := rpc.Dial(listener.Addr().String(), prometheus.NewRegistry())
	require.NoError(t, err)
	var once sync.Once
	r := &replica{metrics: metrics, client: instancev1.NewInstanceServiceClient(conn), conn: conn}
	r.kill = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, errors.Join(<-ended, conn.Close()))
		})
	}
	t.Cleanup(r.kill)
	return r
}

func kubeconfig(t testing.TB) string {
	t.Helper()
	return kubeconfigOf(t, api.Config().Host)
}

func kubeconfigOf(t testing.TB, host string) string {
	t.Helper()
	access := api.Config()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: access.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// world is one Configuration and some nodes, all named after the test, that end with it.
type world struct {
	testing.TB
	configuration  *akriv0.Configuration
	configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	nodeClient     *kube.Client[*corev1.Node, *corev1.NodeList]
	nodes          []string
}

var worlds atomic.Int64

func newWorld(t testing.TB, capacity int32, nodes int) *world {
	t.Helper()
	w := &world{TB: t}
	var err error
	w.configurations, err = kube.Configurations(api.Config())
	require.NoError(t, err)
	w.instances, err = kube.Instances(api.Config())
	require.NoError(t, err)
	w.nodeClient, err = kube.Nodes(api.Config())
	require.NoError(t, err)
	name := fmt.Sprintf("w%d", worlds.Add(1))
	w.configuration, err = w.configurations.In(space).Create(context.Background(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space},
		Spec:       akriv0.ConfigurationSpec{Capacity: &capacity, DiscoveryHandler: akriv0.DiscoveryHandler{Name: "debugEcho"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(w.end)
	for i := range nodes {
		w.addNode(fmt.Sprintf("%s-n%02d", name, i))
	}
	return w
}

func (w *world) addNode(name string) {
	_, err := w.nodeClient.In("").Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.nodes = append(w.nodes, name)
}

func (w *world) end() {
	for _, node := range w.nodes {
		_ = w.nodeClient.In("").Delete(context.Background(), node, metav1.DeleteOptions{})
	}
	_ = w.configurations.In(space).Delete(context.Background(), w.configuration.Name, metav1.DeleteOptions{})
	list, err := w.instances.In(space).List(context.Background(), metav1.ListOptions{})
	require.NoError(w, err)
	for i := range list.Items {
		_ = w.instances.In(space).Delete(context.Background(), list.Items[i].Name, metav1.DeleteOptions{})
	}
}

func (w *world) device(node, id string, shared bool) *instancev1.Device {
	return &instancev1.Device{
		Instance: akriv0.InstanceName(w.configuration.Name, akriv0.Digest(id, node, shared)), Id: id, Shared: shared,
		Properties: map[string]string{"ID": id},
	}
}

func (w *world) shared(id string) string { return w.device("", id, true).GetInstance() }

func (w *world) report(node string, devices ...*instancev1.Device) *instancev1.ReportDevicesRequest {
	return &instancev1.ReportDevicesRequest{
		Node: node, Namespace: space, Configuration: w.configuration.Name, ConfigurationUid: string(w.configuration.UID),
		Complete: true, Devices: devices, Handlers: []*instancev1.HandlerState{{Name: "debugEcho", Endpoint: "/h.sock", Status: "Active"}},
	}
}

func (w *world) get(name string) *akriv0.Instance {
	w.Helper()
	instance, err := w.instances.In(space).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(w, err)
	return instance
}

func (w *world) gone(name string) bool {
	_, err := w.instances.In(space).Get(context.Background(), name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func (w *world) status() akriv0.ConfigurationStatus {
	configuration, err := w.configurations.In(space).Get(context.Background(), w.configuration.Name, metav1.GetOptions{})
	require.NoError(w, err)
	return configuration.Status
}

func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	require.Eventually(w, is, within, every, what)
}

// stream is a node's ReportDevices stream.
type stream struct {
	testing.TB
	grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]
	revision uint64
}

func open(t testing.TB, r *replica) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	opened, err := r.client.ReportDevices(ctx, grpc.WaitForReady(true))
	require.NoError(t, err)
	return &stream{TB: t, BidiStreamingClient: opened}
}

// tell reports and waits for the answer.
func (s *stream) tell(request *instancev1.ReportDevicesRequest) []*instancev1.Refusal {
	s.Helper()
	s.revision++
	request.Revision = s.revision
	require.NoError(s, s.Send(request))
	response, err := s.Recv()
	require.NoError(s, err)
	require.Equal(s, s.revision, response.GetRevision())
	return response.GetRefusals()
}

// see lets every node report the shared device, each on a stream to one of the replicas.
func (w *world) see(id string, replicas ...*replica) []*stream {
	w.Helper()
	var streams []*stream
	for i, node := range w.nodes {
		s := open(w, replicas[i%len(replicas)])
		require.Empty(w, s.tell(w.report(node, w.device(node, id, true))))
		streams = append(streams, s)
	}
	return streams
}

func (r *replica) writes(t testing.TB) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(t, err)
	total := 0.0
	for _, family := range families {
		if family.GetName() == "akri_api_writes_total" {
			for _, metric := range family.GetMetric() {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return total
}

func claim(instance string, index uint32) *instancev1.SlotClaim {
	return &instancev1.SlotClaim{Namespace: space, Instance: instance, Index: index}
}
