package bench

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"

	"akri.sh/integration/simulation"
)

// writer is a running instance-writer without simulated nodes.
type writer struct{ *simulation.Environment }

// startWriter starts an API server and an instance-writer. The nodes are simulated by their
// reports.
func startWriter(ctx context.Context) (*writer, error) {
	environment, err := simulation.New(ctx, simulation.Options{Replicas: 1, Progress: func(string, ...any) {}})
	if err != nil {
		return nil, err
	}
	return &writer{environment}, nil
}

// transport is how device-plugin-host calls instance-writer.
type transport struct {
	name, address string
	identity      rpc.Identity
}

// transports are plain text, and TLS with the token of device-plugin-host on a node.
func (w *writer) transports(ctx context.Context, node string) ([]transport, error) {
	address, err := w.Writers[0].NamedAddress()
	if err != nil {
		return nil, err
	}
	identity, err := w.Identity(ctx, simulation.DevicePluginHost, node)
	if err != nil {
		return nil, err
	}
	return []transport{{plainText, w.Writers[0].PlainAddress, rpc.Identity{}}, {withTLS, address, identity}}, nil
}

func (t transport) dial() (*grpc.ClientConn, error) {
	options, err := t.identity.DialOptions()
	if err != nil {
		return nil, err
	}
	conn, err := rpc.Dial(t.address, prometheus.NewRegistry(), options...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return conn, nil
}
