package bench

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/integration/mesh"
	"akri.sh/integration/process"
)

// writer is a running instance-writer.
type writer struct {
	mesh.Clients
	address string
	process *process.Process
	conn    *grpc.ClientConn
	client  instancev1.InstanceServiceClient
}

func startWriter(ctx context.Context, api *kubetest.Server) (w *writer, err error) {
	w = &writer{}
	if w.Clients, err = mesh.NewClients(api.Config()); err != nil {
		return nil, err
	}
	if w.address, err = process.FreeAddress(ctx); err != nil {
		return nil, err
	}
	if w.process, err = process.Start(ctx, api, "instance-writer", "--address=", "--plain-address", w.address, "--admin-address=", "--log-level=error"); err != nil {
		return nil, err
	}
	if w.conn, err = rpc.Dial(w.address, prometheus.NewRegistry()); err != nil {
		return nil, errors.Join(err, w.process.Stop())
	}
	w.client = instancev1.NewInstanceServiceClient(w.conn)
	return w, nil
}

func (w *writer) stop() error {
	return errors.Join(w.process.Stop(), w.conn.Close())
}
