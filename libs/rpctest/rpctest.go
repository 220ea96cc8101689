// Package rpctest serves gRPC on unix sockets in tests.
package rpctest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"
)

// Serve serves on a socket in a temporary directory until the test ends and returns its address.
func Serve(tb testing.TB, register func(grpc.ServiceRegistrar)) string {
	tb.Helper()
	address := "unix://" + filepath.Join(tb.TempDir(), "s.sock")
	ServeAt(tb, address, register)
	return address
}

// ServeAt serves at the address until the test ends or stop is called.
func ServeAt(tb testing.TB, address string, register func(grpc.ServiceRegistrar), options ...grpc.ServerOption) (stop func()) {
	tb.Helper()
	listener, err := rpc.Listen(tb.Context(), zaptest.NewLogger(tb), address)
	require.NoError(tb, err)
	server := rpc.NewServer(zaptest.NewLogger(tb), prometheus.NewRegistry(), options...)
	register(server)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, server, listener) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			server.Stop() // do not wait for open streams
			require.NoError(tb, <-done)
		}
	}
	tb.Cleanup(stop)
	return stop
}

// Dial connects to the address until the test ends.
func Dial(tb testing.TB, address string) *grpc.ClientConn {
	tb.Helper()
	conn, err := rpc.Dial(address, prometheus.NewRegistry())
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}
