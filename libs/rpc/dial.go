package rpc

import (
	"fmt"
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

// roundRobin uses every address that a `dns:///` name resolves to and leaves a dead one at once. A ClusterIP Service has one
// address, which leads each new connection to some replica: servers end connections now and then for that (MaxConnectionAge).
const roundRobin = `{"loadBalancingConfig":[{"round_robin":{}}]}`

// Dial returns a connection to `unix:///abs/path`, `dns:///host:port` or `host:port`. It connects when first used and
// reconnects for ever; calls have deadlines of their own.
func Dial(address string, registerer prometheus.Registerer) (*grpc.ClientConn, error) {
	metrics := registered(registerer, grpcprom.NewClientMetrics(grpcprom.WithClientHandlingTimeHistogram()))
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect(address)),
		grpc.WithDefaultServiceConfig(roundRobin),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithChainUnaryInterceptor(metrics.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(metrics.StreamClientInterceptor()),
	}
	if isUnix(address) {
		// Servers of other languages refuse a path as authority.
		options = append(options, grpc.WithAuthority("localhost"))
	} else {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	return conn, nil
}

func isUnix(address string) bool { return strings.HasPrefix(address, "unix:") }

// reconnect is eager on the node, where a refused connection costs nothing, and gentle over the network.
func reconnect(address string) grpc.ConnectParams {
	longest := 5 * time.Second
	if isUnix(address) {
		longest = 500 * time.Millisecond
	}
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longest},
		MinConnectTimeout: 5 * time.Second,
	}
}
