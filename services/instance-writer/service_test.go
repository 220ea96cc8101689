package instancewriter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/libs/admin"
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

const (
	timeout   = time.Minute
	namespace = "default"
)

var api *kubetest.Server

func TestMain(m *testing.M) {
	if address := os.Getenv(addressVariable); address != "" {
		os.Exit(runProcess(address, os.Getenv(kubeconfigVariable)))
	}
	if os.Getenv(floodVariable) != "" {
		os.Exit(m.Run()) // it needs no API server
	}
	kubetest.Main(m, &api)
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

// startAt starts a replica that reaches the API server at the host.
func startAt(t testing.TB, host string, grace time.Duration) *replica {
	t.Helper()
	config := api.Config()
	config.Host = host
	return startWith(t, instancewriter.Config{Flags: kube.Flags{REST: config}, NodeGrace: grace}, zap.NewNop())
}

func startWith(t testing.TB, config instancewriter.Config, log *zap.Logger) *replica {
	t.Helper()
	metrics := prometheus.NewRegistry()
	config.Namespace = cmp.Or(config.Namespace, namespace)
	createNames(t, config.Namespace)
	writer, err := instancewriter.NewWithoutIdentities(config, service.Env{Log: log, Metrics: metrics, Health: &admin.Health{}})
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

// createNames creates the ConfigMap of the chart in which instance-writer records names, if it does
// not exist.
func createNames(t testing.TB, of string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.Config())
	require.NoError(t, err)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: akriv0.NamesConfigMap}}
	_, err = client.CoreV1().ConfigMaps(of).Create(t.Context(), configMap, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}

// fixture is a Configuration and some nodes, which are deleted when the test ends.
type fixture struct {
	testing.TB
	configuration  *akriv0.Configuration
	configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	nodeClient     *kube.Client[*corev1.Node, *corev1.NodeList]
	nodes          []string
}

var fixtures atomic.Int64

func newFixture(t testing.TB, capacity int32, nodes int) *fixture {
	t.Helper()
	f := &fixture{TB: t}
	var err error
	f.configurations, err = kube.Configurations(api.Config())
	require.NoError(t, err)
	f.instances, err = kube.Instances(api.Config())
	require.NoError(t, err)
	f.nodeClient, err = kube.Nodes(api.Config())
	require.NoError(t, err)
	name := fmt.Sprintf("f%d", fixtures.Add(1))
	f.configuration, err = f.configurations.In(namespace).Create(context.Background(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       akriv0.ConfigurationSpec{Capacity: &capacity, DiscoveryHandler: akriv0.DiscoveryHandler{Name: "debugEcho"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(f.cleanUp)
	for i := range nodes {
		f.addNode(fmt.Sprintf("%s-n%02d", name, i))
	}
	return f
}

func (f *fixture) addNode(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := f.nodeClient.In("").Create(context.Background(), node, metav1.CreateOptions{})
	require.NoError(f, err)
	f.nodes = append(f.nodes, name)
}

func (f *fixture) cleanUp() {
	for _, node := range f.nodes {
		_ = f.nodeClient.In("").Delete(context.Background(), node, metav1.DeleteOptions{})
	}
	_ = f.configurations.In(namespace).Delete(context.Background(), f.configuration.Name, metav1.DeleteOptions{})
	list, err := f.instances.In(namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(f, err)
	for i := range list.Items {
		_ = f.instances.In(namespace).Delete(context.Background(), list.Items[i].Name, metav1.DeleteOptions{})
	}
}

func (f *fixture) device(node, id string, shared bool) *discoveryv1.Device {
	return &discoveryv1.Device{
		Instance: akriv0.InstanceName(f.configuration.Name, akriv0.Digest(id, node, shared)), Id: id, Shared: shared,
		Properties: map[string]string{"ID": id},
	}
}

func (f *fixture) instanceName(id string) string { return f.device("", id, true).GetInstance() }

func (f *fixture) newReport(node string, devices ...*discoveryv1.Device) *instancev1.ReportDevicesRequest {
	return &instancev1.ReportDevicesRequest{
		Node: node, Namespace: namespace, Configuration: f.configuration.Name, ConfigurationUid: string(f.configuration.UID),
		Complete: true, Devices: devices,
		Handlers: []*instancev1.HandlerState{{Name: "debugEcho", Endpoint: "/h.sock", Status: string(akriv0.HandlerActive)}},
	}
}

func (f *fixture) get(name string) *akriv0.Instance {
	f.Helper()
	instance, err := f.instances.In(namespace).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(f, err)
	return instance
}

func (f *fixture) deleted(name string) bool {
	_, err := f.instances.In(namespace).Get(context.Background(), name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func (f *fixture) status() akriv0.ConfigurationStatus {
	configuration, err := f.configurations.In(namespace).Get(context.Background(), f.configuration.Name, metav1.GetOptions{})
	require.NoError(f, err)
	return configuration.Status
}

func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	require.Eventually(f, condition, timeout, 10*time.Millisecond, what)
}

// stream is the ReportDevices stream of a node.
type stream struct {
	testing.TB
	grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]
	revision uint64
}

func openReports(t testing.TB, r *replica) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	reports, err := r.client.ReportDevices(ctx, grpc.WaitForReady(true))
	require.NoError(t, err)
	return &stream{TB: t, BidiStreamingClient: reports}
}

// send sends a report and returns the refusals of its response.
func (s *stream) send(request *instancev1.ReportDevicesRequest) []*instancev1.Refusal {
	s.Helper()
	s.revision++
	request.Revision = s.revision
	require.NoError(s, s.Send(request))
	response, err := s.Recv()
	require.NoError(s, err)
	require.Equal(s, s.revision, response.GetRevision())
	return response.GetRefusals()
}

// reportShared makes every node report the shared device, each on a stream to one of the replicas.
func (f *fixture) reportShared(id string, replicas ...*replica) []*stream {
	f.Helper()
	var streams []*stream
	for i, node := range f.nodes {
		s := openReports(f, replicas[i%len(replicas)])
		require.Empty(f, s.send(f.newReport(node, f.device(node, id, true))))
		streams = append(streams, s)
	}
	return streams
}

// writes returns the number of writes except Events, which are written later.
func (r *replica) writes(t testing.TB) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(t, err)
	total := 0.0
	for _, family := range families {
		if family.GetName() == "akri_api_writes_total" {
			for _, metric := range family.GetMetric() {
				if metric.GetLabel()[0].GetValue() != "event" {
					total += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}

func claim(instance string, index uint32) *instancev1.SlotClaim {
	return &instancev1.SlotClaim{Namespace: namespace, Instance: instance, Index: index}
}
