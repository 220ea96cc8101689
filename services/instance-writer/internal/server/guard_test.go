package server_test

import (
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/instance-writer/internal/server"
)

func TestAReplicaThatIsCutOffEndsStreamsAndTakesNone(t *testing.T) {
	lost := make(chan struct{})
	results := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "r"}, []string{"result"})
	calls := rpc.NewServer(zap.NewNop(), prometheus.NewRegistry())
	instancev1.RegisterInstanceServiceServer(calls, server.Guard{
		Lost: func() <-chan struct{} { return lost }, Server: server.New(server.Config{Reservations: results, Log: zap.NewNop()}),
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test ends when it ends
	require.NoError(t, err)
	go func() { _ = calls.Serve(listener) }()
	t.Cleanup(calls.Stop)
	conn, err := rpc.Dial(listener.Addr().String(), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	client := instancev1.NewInstanceServiceClient(conn)

	stream, err := client.ReportDevices(t.Context())
	require.NoError(t, err)
	close(lost)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	stream, err = client.ReportDevices(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}
