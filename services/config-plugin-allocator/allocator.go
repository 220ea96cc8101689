// Package allocator is config-plugin-allocator: the policy of Configuration-level resources as a service of its own. It
// keeps no state and asks nobody: each request carries all that it looks at.
package allocator

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
)

// Config is filled from flags and environment.
type Config struct {
	Socket string `help:"Address to serve on." default:"unix:///run/akri/config-plugin-allocator.sock" placeholder:"ADDRESS"`
}

// Service answers for one node, or for many: it is a pure function.
type Service struct {
	config  Config
	log     *zap.Logger
	metrics prometheus.Registerer
	server  *server
}

// New makes the service; nothing starts before Run.
func New(config Config, env service.Env) (*Service, error) {
	s := &Service{config: config, log: env.Log, metrics: env.Metrics, server: &server{metrics: newMetrics(env.Metrics)}}
	env.Health.AddLiveness("socket", s.probe)
	env.Health.AddReadiness("socket", s.probe)
	return s, nil
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	listener, err := rpc.Listen(ctx, s.config.Socket)
	if err != nil {
		return err
	}
	grpcServer := rpc.NewServer(s.log, s.metrics)
	allocationv1.RegisterConfigurationAllocatorServiceServer(grpcServer, s.server)
	s.log.Info("serving", zap.String("endpoint", s.config.Socket))
	return rpc.Serve(ctx, grpcServer, listener)
}

// probe calls the service as its clients do.
func (s *Service) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := rpc.Dial(s.config.Socket, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := allocationv1.NewConfigurationAllocatorServiceClient(conn).ListVirtualDevices(ctx, &allocationv1.ListVirtualDevicesRequest{}); err != nil {
		return fmt.Errorf("call %s: %w", s.config.Socket, err)
	}
	return nil
}
