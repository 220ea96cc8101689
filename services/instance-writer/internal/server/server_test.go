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
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "s"})
	conflicts := prometheus.NewCounter(prometheus.CounterOpts{Name: "c"})
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "w"}, []string{"kind", "result"})
	objects, err := cluster.New(&rest.Config{}, "default", writes) // with empty caches
	if err != nil {
		panic(err)
	}
	return server.New(server.Options{
		Cluster:        objects,
		Reservations:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "r"}, []string{"result"}),
		Writer:         batch.NewWriter(store, batch.Metrics{Seconds: seconds, Batch: seconds, Conflicts: conflicts}),
		ConnectionLost: func() <-chan struct{} { return lost },
		Log:            zap.NewNop(),
	})
}

// Open streams end, and new streams are refused, while the connection to the API server is lost.
func TestStreamsEndWhenConnectionIsLost(t *testing.T) {
	lost := make(chan struct{})
	grpcServer := rpc.NewServer(zap.NewNop(), prometheus.NewRegistry())
	instancev1.RegisterInstanceServiceServer(grpcServer, newServer(nil, lost))
	configurationv1.RegisterConfigurationServiceServer(grpcServer, &server.ConfigurationServer{
		Catalog: emptyCatalog(t), Labels: func(string) map[string]string { return nil },
		ConnectionLost: func() <-chan struct{} { return lost },
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only in this test
	require.NoError(t, err)
	go func() { _ = grpcServer.Serve(listener) }()
	t.Cleanup(grpcServer.Stop)
	conn, err := rpc.Dial(listener.Addr().String(), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
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
