package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"

	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
)

// Writer is an instance-writer in a process of its own.
type Writer struct {
	*Process
	// Address has the port on 127.0.0.1.
	Address string
	// Identities are those of its callers.
	Identities *identitytest.Identities

	dir string // empty if the caller has made the identities
}

// StartWriter starts an instance-writer with identities for its callers. Its CA is published when
// StartWriter returns.
func StartWriter(ctx context.Context, api *kubetest.Server, env []string, flags ...string) (w *Writer, err error) {
	client, err := kubernetes.NewForConfig(api.Config())
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	dir, err := os.MkdirTemp("", "akri-identities-")
	if err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	identities, err := identitytest.New(ctx, client, dir)
	if err == nil {
		w, err = StartReplica(ctx, api, identities, env, flags...)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}

	w.dir = dir
	if err := identities.AwaitCA(ctx); err != nil {
		_ = w.Stop()
		return nil, err
	}
	return w, nil
}

// StartReplica starts a replica of instance-writer with the identities of its callers.
func StartReplica(
	ctx context.Context, api *kubetest.Server, identities *identitytest.Identities, env []string, flags ...string,
) (*Writer, error) {
	address, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--address", address, "--namespace", identitytest.Namespace, "--admin-address=", "--log-level=error")
	process, err := StartWithEnv(ctx, api, env, "instance-writer", flags...)
	if err != nil {
		return nil, err
	}
	return &Writer{Process: process, Address: address, Identities: identities}, nil
}

// Stop ends the process and removes its files.
func (w *Writer) Stop() error {
	err := w.Process.Stop()
	if w.dir != "" {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

// namedAddress is Address with a name of the server's certificate.
func (w *Writer) namedAddress() string {
	_, port, _ := net.SplitHostPort(w.Address) // of FreeAddress
	return net.JoinHostPort("localhost", port)
}

// Flags are those by which a service on a node calls instance-writer. The Node must exist.
func (w *Writer) Flags(ctx context.Context, account, node string) ([]string, error) {
	identity, err := w.Identities.Of(ctx, account, node)
	if err != nil {
		return nil, err
	}
	return []string{
		"--instance-writer", w.namedAddress(), "--instance-writer-ca", identity.CAFile, "--instance-writer-token", identity.TokenFile,
	}, nil
}

// Dial connects as a service on a node. The Node must exist.
func (w *Writer) Dial(ctx context.Context, account, node string) (*grpc.ClientConn, error) {
	identity, err := w.Identities.Of(ctx, account, node)
	if err != nil {
		return nil, err
	}
	options, err := rpc.Identity(identity).DialOptions(w.namedAddress())
	if err != nil {
		return nil, err
	}
	return rpc.Dial(w.namedAddress(), prometheus.NewRegistry(), options...)
}
