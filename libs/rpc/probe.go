package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// Probe connects to a server, waits for the server's HTTP/2 settings and disconnects. Servers limit
// the pings of a connection, but not the number of connections. If the server accepts the
// connection and sends nothing, Probe returns the error of ctx.
func Probe(ctx context.Context, address string, options ...grpc.DialOption) error {
	all := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Hour}), // ctx has the deadline
		grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes),
	}
	if isUnix(address) {
		all = append(all, grpc.WithAuthority("localhost"))
	}
	conn, err := grpc.NewClient(address, append(all, options...)...)
	if err != nil {
		return fmt.Errorf("probe %q: %w", address, err)
	}
	defer conn.Close()
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return fmt.Errorf("probe %q: connecting failed", address)
		default:
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("probe %q: %w", address, ctx.Err())
		}
	}
}
