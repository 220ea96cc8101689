package server_test

import (
	"context"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/catalog"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/properties"
	"akri.sh/services/instance-writer/internal/server"
)

func newServer(store batch.Store, lost <-chan struct{}) *server.Server {
	served, _ := newServerWithCaches(store, lost)
	return served
}

// newServerWithCaches also returns the caches of the server, which are empty.
func newServerWithCaches(store batch.Store, lost <-chan struct{}) (*server.Server, *cluster.Cluster) {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "s"})
	conflicts := prometheus.NewCounter(prometheus.CounterOpts{Name: "c"})
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "w"}, []string{"kind", "result"})
	objects, err := cluster.New(&rest.Config{}, "default", writes)
	if err != nil {
		panic(err)
	}
	return server.New(server.Options{
		Cluster:        objects,
		Reservations:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "r"}, []string{"result"}),
		Writer:         batch.NewWriter(store, batch.Metrics{Seconds: seconds, Batch: seconds, Conflicts: conflicts}),
		ConnectionLost: func() <-chan struct{} { return lost },
		Log:            zap.NewNop(),
	}), objects
}

// dial serves the services that register adds, and returns a connection to them.
func dial(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	grpcServer := rpc.NewServer(zap.NewNop(), prometheus.NewRegistry())
	register(grpcServer)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only in this test
	require.NoError(t, err)
	go func() { _ = grpcServer.Serve(listener) }()
	t.Cleanup(grpcServer.Stop)

	conn, err := rpc.Dial(listener.Addr().String(), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// Open streams end, and new streams are refused, while the connection to the API server is lost.
func TestStreamsEndWhenConnectionIsLost(t *testing.T) {
	lost := make(chan struct{})
	conn := dial(t, func(s *grpc.Server) {
		instancev1.RegisterInstanceServiceServer(s, newServer(nil, lost))
		configurationv1.RegisterConfigurationServiceServer(s, &server.ConfigurationServer{
			Catalog: emptyCatalog(t), Labels: func(string) map[string]string { return nil },
			ConnectionLost: func() <-chan struct{} { return lost },
		})
	})
	client := instancev1.NewInstanceServiceClient(conn)

	stream, err := client.ReportDevices(t.Context())
	require.NoError(t, err)
	watch := watchConfigurations(t, conn)
	_, err = watch.Recv()
	require.NoError(t, err)
	close(lost)
	for range 2 {
		_, err = stream.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		stream, err = client.ReportDevices(t.Context())
		require.NoError(t, err)
		_, err = watch.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		watch = watchConfigurations(t, conn)
	}
}

func watchConfigurations(t *testing.T, conn *grpc.ClientConn) configurationv1.ConfigurationService_WatchConfigurationsClient {
	t.Helper()
	watch, err := configurationv1.NewConfigurationServiceClient(conn).WatchConfigurations(t.Context())
	require.NoError(t, err)
	require.NoError(t, watch.Send(&configurationv1.WatchConfigurationsRequest{Node: "n"}))
	return watch
}

type emptyCluster struct{}

func (emptyCluster) Configurations() []*akriv0.Configuration { return nil }

func (emptyCluster) ConfigurationRevision() uint64 { return 1 }

// emptyCatalog returns a complete Catalog without Configurations.
func emptyCatalog(t *testing.T) *catalog.Catalog {
	t.Helper()
	changed := broadcast.NewSignal()
	empty := catalog.New(emptyCluster{}.Configurations, emptyCluster{}.ConfigurationRevision, func() map[string]string { return nil }, properties.NewStore(zap.NewNop(), nil, changed), changed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run updates once
	empty.Run(ctx)
	return empty
}

// After a restore of etcd, the watch lists Instances with resourceVersions that are earlier than
// those that nodes have received. Nodes ignore earlier revisions, so those must increase.
func TestRevisionsIncreaseAfterRestore(t *testing.T) {
	served, caches := newServerWithCaches(nil, nil)
	conn := dial(t, func(s *grpc.Server) { instancev1.RegisterInstanceServiceServer(s, served) })
	client := instancev1.NewInstanceServiceClient(conn)
	listed := func(version, list, holder string) *akriv0.Instance {
		instance := &akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-8120fe", ResourceVersion: version},
			Spec: akriv0.InstanceSpec{
				ConfigurationName: "cam", Nodes: []string{"n"}, Capacity: 1, DeviceUsage: map[string]string{"cam-8120fe-0": holder},
			},
		}
		require.NoError(t, caches.Instances.GetStore().Replace([]any{instance}, list))
		return instance
	}
	open := func() (watch grpc.ServerStreamingClient[instancev1.WatchInstancesResponse], first *instancev1.Instance) {
		watch, err := client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: "n"})
		require.NoError(t, err)
		snapshot, err := watch.Recv()
		require.NoError(t, err)
		require.Len(t, snapshot.GetSnapshot().GetInstances(), 1)
		return watch, snapshot.GetSnapshot().GetInstances()[0]
	}

	changed := listed("20", "30", "n")
	watch, before := open()
	require.Equal(t, "n", before.GetSlots()[0].GetHolder().GetNode())
	served.InstanceChanged(changed, listed("10", "1000000010", ""))
	response, err := watch.Recv()
	require.NoError(t, err)
	_, snapshot := open()
	for what, after := range map[string]*instancev1.Instance{"update": response.GetUpdated(), "snapshot": snapshot} {
		require.NotNil(t, after.GetSlots()[0].GetFree(), what)
		require.Greater(t, after.GetRevision(), before.GetRevision(), what)
	}
}
