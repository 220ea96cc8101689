package rpc_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
)

// balancer forwards the connections to its address to the targets in turn, as a Service does.
type balancer struct {
	address string
	targets []string
	dials   atomic.Int64
}

func balance(t *testing.T, targets ...string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only in tests
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	b := &balancer{address: listener.Addr().String(), targets: targets}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			target := targets[int(b.dials.Add(1)-1)%len(targets)]
			go forward(conn, target)
		}
	}()
	return b
}

func forward(conn net.Conn, target string) {
	defer conn.Close()
	server, err := net.Dial("tcp", target) //nolint:noctx // only in tests
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, conn); _ = server.Close() }()
	_, _ = io.Copy(conn, server)
}

// serveReplica serves health checks. Streams end with the error that refuse returns, if any.
func serveReplica(t *testing.T, refuse func() error) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only in tests
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	rpctest.ServeAt(t, listener.Addr().String(), none,
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := refuse(); err != nil {
				return err
			}
			return handler(server, stream)
		}))
	return listener.Addr().String()
}

func full() error { return rpc.NewError(codes.ResourceExhausted, "NotEnoughMemory", "full") }

func accept() error { return nil }

func dialReplicas(t *testing.T, address string) *rpc.Replicas {
	t.Helper()
	conn, err := rpc.DialReplicas(address, prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// watch opens a stream and receives a message.
func watch(ctx context.Context, conn grpc.ClientConnInterface) error {
	stream, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// A client whose stream a replica refuses reaches the other one. A call that is in progress on the
// first connection is not affected.
func TestRefusedStreamReachesAnotherReplica(t *testing.T) {
	for name, test := range map[string]struct {
		refusal error
		dials   int64
	}{
		"refused by the replica":   {full(), 2},
		"an error of the client":   {status.Error(codes.ResourceExhausted, "received message larger than max"), 1},
		"an error of the request":  {status.Error(codes.InvalidArgument, "no"), 1},
		"the replica is not ready": {unavailable(), 2},
	} {
		t.Run(name, func(t *testing.T) {
			var refusing atomic.Bool
			first := serveReplica(t, func() error {
				if refusing.Load() {
					return test.refusal
				}
				return nil
			})
			service := balance(t, first, serveReplica(t, accept))
			conn := dialReplicas(t, service.address)
			open, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
			require.NoError(t, err)
			_, err = open.Recv()
			require.NoError(t, err)

			refusing.Store(true)
			require.Equal(t, status.Code(test.refusal), status.Code(watch(t.Context(), conn)))
			err = watch(t.Context(), conn)
			require.Equal(t, test.dials == 1, err != nil, "%v", err)
			require.Equal(t, test.dials, service.dials.Load())
			require.NoError(t, open.Context().Err())
		})
	}
}

// A client stops while it reads a refusal. TestMain finds a connection that stays open.
func TestRefusalIsReadAfterClose(t *testing.T) {
	conn, err := rpc.DialReplicas(serveReplica(t, full), prometheus.NewRegistry())
	require.NoError(t, err)
	refused, closed := make(chan struct{}), make(chan struct{})
	stream, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{}, grpc.OnFinish(func(error) {
		close(refused)
		<-closed // before conn learns of the refusal
	}))
	require.NoError(t, err)
	read := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		read <- err
	}()

	<-refused
	require.NoError(t, conn.Close())
	close(closed)
	require.Equal(t, codes.ResourceExhausted, status.Code(<-read))
}

// A client stops while streams of several connections are open. Close ends the streams, and the end
// of a stream closed a previous connection while Close waited. The race detector reported it in one
// of three rounds.
func TestCloseEndsStreamsOfSeveralConnections(t *testing.T) {
	const rounds, connections = 20, 8
	var refusing atomic.Bool
	address := serveReplica(t, func() error {
		if refusing.Load() {
			return full()
		}
		return nil
	})
	for range rounds {
		conn, err := rpc.DialReplicas(address, prometheus.NewRegistry())
		require.NoError(t, err)
		var streams []healthv1.Health_WatchClient
		for range connections {
			refusing.Store(false)
			stream, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
			require.NoError(t, err)
			_, err = stream.Recv()
			require.NoError(t, err)
			streams = append(streams, stream)

			refusing.Store(true)
			require.Equal(t, codes.ResourceExhausted, status.Code(watch(t.Context(), conn))) // the next call uses a new connection
		}

		require.NoError(t, conn.Close())
		for _, stream := range streams {
			_, err := stream.Recv()
			require.Equal(t, codes.Canceled, status.Code(err))
		}
	}
}

func unavailable() error { return rpc.NewError(codes.Unavailable, "ConnectionLost", "connection lost") }

// If all replicas refuse, each attempt makes one connection and closes the previous one. The
// streams of a client do not make connections for each other.
func TestConnectionsToFullReplicas(t *testing.T) {
	service := balance(t, serveReplica(t, full), serveReplica(t, full))
	conn := dialReplicas(t, service.address)
	const streams, attempts = 2, 8
	var opened atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	for range streams {
		go func() {
			defer func() { ended <- struct{}{} }()
			rpc.Keep(ctx, zap.NewNop(), 100*time.Millisecond, func(ctx context.Context, _ func()) error {
				if opened.Add(1) >= attempts {
					cancel()
				}
				return watch(ctx, conn)
			})
		}()
	}
	for range streams {
		<-ended
	}
	require.LessOrEqual(t, service.dials.Load(), opened.Load())
	require.Greater(t, service.dials.Load(), int64(1))
}

// A client that keeps one connection never reaches the other replica.
func TestOneConnectionStaysAtItsReplica(t *testing.T) {
	service := balance(t, serveReplica(t, full), serveReplica(t, accept))
	conn, err := rpc.Dial(service.address, prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	for range 10 {
		require.Equal(t, codes.ResourceExhausted, status.Code(watch(t.Context(), conn)))
	}
	require.EqualValues(t, 1, service.dials.Load())
}
