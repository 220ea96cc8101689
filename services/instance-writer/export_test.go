package instancewriter

import (
	"net"

	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/reports"
)

// NewWithoutIdentities returns a Service that serves anyone in plain text, for tests that call for
// many nodes. Other tests are about identities.
func NewWithoutIdentities(config Config, env service.Env) (*Service, error) {
	return newService(config, env, func(
		config Config, env service.Env, _ *rest.Config, _ *cluster.Cluster, _ *reports.Store, _ metrics, first ...grpc.ServerOption,
	) (*endpoint, error) {
		server := rpc.NewServer(env.Log, env.Metrics, append(first, rpc.Replicated(config.ConnectionAge))...)
		return &endpoint{server: server, listen: func(listener net.Listener) net.Listener { return listener }}, nil
	})
}
