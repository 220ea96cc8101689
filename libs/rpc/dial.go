package rpc

import (
	"fmt"
	"math"
	"strings"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	keepaliveTime    = 20 * time.Second
	keepaliveTimeout = 5 * time.Second
)

// roundRobin uses every address that a `dns:///` name resolves to. A ClusterIP Service has one
// address and chooses a replica for each new connection, so its servers limit the age of
// connections (see Replicated).
const roundRobin = `{"loadBalancingConfig":[{"round_robin":{}}]}`

// Dial returns a connection to `unix:///abs/path`, `dns:///host:port` or `host:port`. It connects
// on first use and reconnects until it is closed. Callers set the deadlines of calls and close the
// connection. The options come after those of the mesh.
func Dial(address string, registerer prometheus.Registerer, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	metrics := registered(registerer, grpcprom.NewClientMetrics(grpcprom.WithClientHandlingTimeHistogram()))
	all := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect(address)),
		grpc.WithDefaultServiceConfig(roundRobin),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithChainUnaryInterceptor(metrics.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(metrics.StreamClientInterceptor()),
	}
	if isUnix(address) {
		// gRPC servers in other languages refuse a path as the :authority.
		all = append(all, grpc.WithAuthority("localhost"))
	} else {
		all = append(all, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}))
	}
	conn, err := grpc.NewClient(address, append(all, options...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	return conn, nil
}

// WithoutKeepalive is an option for servers of other projects. Unless they are configured
// otherwise, gRPC servers close a connection with more than one ping in five minutes
// (`too_many_pings`).
func WithoutKeepalive() grpc.DialOption {
	return grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: math.MaxInt64})
}

func isUnix(address string) bool { return strings.HasPrefix(address, "unix:") }

// reconnect returns short delays for sockets of the node, where a refused connection is cheap.
func reconnect(address string) grpc.ConnectParams {
	maxDelay := 5 * time.Second
	if isUnix(address) {
		maxDelay = 500 * time.Millisecond
	}
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxDelay},
		MinConnectTimeout: 5 * time.Second,
	}
}
