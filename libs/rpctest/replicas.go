package rpctest

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"

	"akri.sh/libs/rpc"
)

// Replicas are two replicas of a server behind one address.
type Replicas struct {
	connections atomic.Int64
}

type refusedConnection struct{}

// ServeReplicas serves at the address until the test ends. The first connection is one to a replica
// that has not enough memory, and refuses all calls. The other replica, which has all other
// connections, refuses none.
func ServeReplicas(tb testing.TB, address string, register func(grpc.ServiceRegistrar)) *Replicas {
	tb.Helper()
	r := &Replicas{}
	ServeAt(tb, address, register, grpc.StatsHandler(r),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := refusal(ctx); err != nil {
				return nil, err
			}
			return handler(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := refusal(stream.Context()); err != nil {
				return err
			}
			return handler(server, stream)
		}))
	return r
}

func refusal(ctx context.Context) error {
	if ctx.Value(refusedConnection{}) == nil {
		return nil
	}
	return rpc.NewError(codes.ResourceExhausted, "NotEnoughMemory", "not enough memory")
}

// Connections returns the number of connections that clients have opened.
func (r *Replicas) Connections() int64 { return r.connections.Load() }

// TagConn implements stats.Handler.
func (r *Replicas) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	if r.connections.Add(1) == 1 {
		return context.WithValue(ctx, refusedConnection{}, true)
	}
	return ctx
}

// HandleConn implements stats.Handler.
func (*Replicas) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC implements stats.Handler.
func (*Replicas) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (*Replicas) HandleRPC(context.Context, stats.RPCStats) {}
