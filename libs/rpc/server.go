// Package rpc creates all gRPC servers and client connections of the mesh and sets their policy.
package rpc

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

const (
	// maxMessageBytes fits the devices of one Configuration at the limit of 10,000.
	maxMessageBytes = 64 << 20
	stopTimeout     = 5 * time.Second
	// cancelTimeout is how long cut calls have to return. Calls that hang do not delay the end of
	// the process: the kubelet kills it after 10 s.
	cancelTimeout = time.Second
	// bufferBytes is the size of the read and the write buffer of a connection. Most messages are
	// shorter. gRPC's default of 32 KiB would take 8 MiB for the connections of 250 nodes.
	bufferBytes = 4 << 10
)

// Replicated is an option for servers with several replicas behind one address. It closes
// connections at about the given age, so that clients spread over the replicas. Running calls have
// time to finish; clients reopen streams.
func Replicated(age time.Duration) grpc.ServerOption {
	return grpc.KeepaliveParams(keepalive.ServerParameters{
		Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionAge: age, MaxConnectionAgeGrace: min(age, stopTimeout),
	})
}

// NewServer returns a server with metrics, logging, panic recovery, health and reflection.
func NewServer(logger *zap.Logger, registerer prometheus.Registerer, options ...grpc.ServerOption) *grpc.Server {
	return NewServerWithHealth(logger, registerer, health.NewServer(), options...)
}

// NewServerWithHealth is NewServer for a service that sets its health itself.
func NewServerWithHealth(
	logger *zap.Logger, registerer prometheus.Registerer, state healthv1.HealthServer, options ...grpc.ServerOption,
) *grpc.Server {
	metrics := serverMetrics(registerer)
	recovered := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		logger.Error("call panicked", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		return status.Error(codes.Internal, "internal error")
	})
	calls := callLogger(logger)
	options = append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.ReadBufferSize(bufferBytes), grpc.WriteBufferSize(bufferBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.ChainUnaryInterceptor(metrics.UnaryServerInterceptor(), logging.UnaryServerInterceptor(calls, logOptions...), recovery.UnaryServerInterceptor(recovered)),
		grpc.ChainStreamInterceptor(metrics.StreamServerInterceptor(), logging.StreamServerInterceptor(calls, logOptions...), recovery.StreamServerInterceptor(recovered)),
	}, options...)
	server := grpc.NewServer(options...)
	healthv1.RegisterHealthServer(server, state)
	reflection.Register(server)
	return server
}

// Serve serves on the listeners until ctx ends. Running calls then have five seconds to finish;
// calls and streams that are still open after that are cut. Serve returns at most one second later,
// even if a call does not return.
func Serve(ctx context.Context, server *grpc.Server, listeners ...net.Listener) error {
	return ServeAndFinish(ctx, func() time.Duration { return stopTimeout }, server, listeners...)
}

// ServeAndFinish is Serve with another time that running calls have to finish. It calls timeout
// when ctx ends.
func ServeAndFinish(ctx context.Context, timeout func() time.Duration, server *grpc.Server, listeners ...net.Listener) error {
	failed := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { failed <- server.Serve(listener) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop(server, timeout())
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

func stop(server *grpc.Server, timeout time.Duration) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.GracefulStop() // waits for all calls, also after Stop
	}()
	select {
	case <-stopped:
		return
	case <-time.After(timeout):
	}
	server.Stop()
	select {
	case <-stopped:
	case <-time.After(cancelTimeout):
	}
}

func serverMetrics(registerer prometheus.Registerer) *grpcprom.ServerMetrics {
	metrics := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(
		grpcprom.WithHistogramBuckets([]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5})))
	return registered(registerer, metrics)
}

// registered registers the collector or returns the one that is registered already: a process may
// have several servers.
func registered[C prometheus.Collector](registerer prometheus.Registerer, collector C) C {
	err := registerer.Register(collector)
	if already, ok := err.(prometheus.AlreadyRegisteredError); ok { //nolint:errorlint // never wrapped
		return already.ExistingCollector.(C)
	}
	if err != nil {
		panic(err) // two different collectors with one name
	}
	return collector
}
