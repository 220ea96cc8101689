// Package rpc is the one place where gRPC servers and connections of the mesh are made: their policy, and the seam
// where transport security and caller identity will enter.
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
	// maxMessageBytes bounds one message: a Configuration's devices at the quota of 10,000 fit.
	maxMessageBytes = 64 << 20
	stopTimeout     = 5 * time.Second
	// bufferBytes of each connection, for reading and for writing: most messages are shorter, and gRPC's 32 KiB would be 8 MiB
	// for the connections of 250 nodes.
	bufferBytes = 4 << 10
)

// Replicated is for servers of which several run behind one address: each connection ends at about the given age, and the
// client's next one may lead to another replica. Clients open their streams again; calls have time to finish.
func Replicated(age time.Duration) grpc.ServerOption {
	return grpc.KeepaliveParams(keepalive.ServerParameters{
		Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionAge: age, MaxConnectionAgeGrace: min(age, stopTimeout),
	})
}

// NewServer returns a server with metrics, logging, recovery, health and reflection. Register the services, then Serve.
func NewServer(logger *zap.Logger, registerer prometheus.Registerer, options ...grpc.ServerOption) *grpc.Server {
	metrics := serverMetrics(registerer)
	recovered := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		logger.Error("panic in a call", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
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
	healthv1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	return server
}

// Serve answers on the listeners until ctx ends, then lets running calls finish for at most five seconds: an open
// stream would otherwise hold the process for ever.
func Serve(ctx context.Context, server *grpc.Server, listeners ...net.Listener) error {
	failed := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case <-ctx.Done():
		stop(server)
		return nil
	case err := <-failed:
		stop(server)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("serve: %w", err)
	}
}

func stop(server *grpc.Server) {
	kill := time.AfterFunc(stopTimeout, server.Stop)
	defer kill.Stop()
	server.GracefulStop()
}

func serverMetrics(registerer prometheus.Registerer) *grpcprom.ServerMetrics {
	metrics := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(
		grpcprom.WithHistogramBuckets([]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5})))
	return registered(registerer, metrics)
}

// registered returns the collector, or the one registered before it: a process may have several servers.
func registered[C prometheus.Collector](registerer prometheus.Registerer, collector C) C {
	err := registerer.Register(collector)
	if already, ok := err.(prometheus.AlreadyRegisteredError); ok { //nolint:errorlint // never wrapped
		return already.ExistingCollector.(C)
	}
	if err != nil {
		panic(err) // two different collectors of one name: a mistake in the program
	}
	return collector
}
