package instancewriter

import (
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/server"
)

// newServer returns the gRPC server with the InstanceService of internal/server.
func newServer(config Config, env service.Env, options server.Options) (*grpc.Server, error) {
	instances := server.New(options)
	if err := options.Cluster.AddHandlers(cluster.Handlers{Instance: instances.InstanceChanged}); err != nil {
		return nil, err
	}
	grpcServer := rpc.NewServer(env.Log, env.Metrics, rpc.Replicated(config.ConnectionAge))
	instancev1.RegisterInstanceServiceServer(grpcServer, instances)
	return grpcServer, nil
}
