package rpc

import (
	"context"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// HealthCheck returns a check that calls the gRPC health service over the connection. A process
// that checks its own socket this way sees what its clients see.
func HealthCheck(conn *grpc.ClientConn) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
		return err
	}
}
