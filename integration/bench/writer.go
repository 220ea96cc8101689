package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/integration/mesh"
	"akri.sh/integration/simulation"
)

// writer is a running instance-writer that serves with TLS and in plain text.
type writer struct {
	*simulation.Writer
	mesh.Clients
	identities *simulation.Identities
	conn       *grpc.ClientConn
	// plain sends calls in plain text.
	plain instancev1.InstanceServiceClient
}

func startWriter(ctx context.Context, api *kubetest.Server) (w *writer, err error) {
	w = &writer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if w.Clients, err = mesh.NewClients(api.Config()); err != nil {
		return w, err
	}
	if w.identities, err = simulation.NewIdentities(ctx, w.Kubernetes); err != nil {
		return w, err
	}
	if w.Writer, err = simulation.StartWriter(ctx, api, 0); err != nil {
		return w, err
	}
	if err = w.identities.AwaitCA(ctx); err != nil {
		return w, err
	}
	if w.conn, err = rpc.Dial(w.PlainAddress, prometheus.NewRegistry()); err != nil {
		return w, err
	}
	w.plain = instancev1.NewInstanceServiceClient(w.conn)
	return w, nil
}

func (w *writer) stop() (err error) {
	if w.conn != nil {
		err = w.conn.Close()
	}
	if w.Writer != nil {
		err = errors.Join(err, w.Stop())
	}
	if w.identities != nil {
		err = errors.Join(err, w.identities.Close())
	}
	return err
}

// transport is how device-plugin-host calls instance-writer.
type transport struct {
	name, address string
	identity      rpc.Identity
}

// transports are plain text, and TLS with the token of device-plugin-host on a node.
func (w *writer) transports(ctx context.Context, node string) ([]transport, error) {
	address, err := w.NamedAddress()
	if err != nil {
		return nil, err
	}
	identity, err := w.identities.Of(ctx, simulation.DevicePluginHost, node)
	if err != nil {
		return nil, err
	}
	return []transport{{plainText, w.PlainAddress, rpc.Identity{}}, {withTLS, address, identity}}, nil
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
