// Package allocator is config-plugin-allocator. It implements the policy of Configuration-level
// resources without any state of its own: each request contains the complete state.
package allocator

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/admin"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
)

const healthTimeout = time.Second

// Config is filled from flags and environment.
type Config struct {
	Socket string `help:"Address to serve on." default:"unix:///run/akri/config-plugin-allocator/config-plugin-allocator.sock" placeholder:"ADDRESS"`
}

// Service is config-plugin-allocator.
type Service struct {
	config  Config
	log     *zap.Logger
	metrics prometheus.Registerer
	health  *admin.Health
	server  *server
}

// New returns the service. Run starts it.
func New(config Config, env service.Env) (*Service, error) {
	s := &Service{config: config, log: env.Log, metrics: env.Metrics, health: env.Health, server: &server{metrics: newMetrics(env.Metrics)}}
	env.Health.AddReadiness("socket", s.checkReady)
	return s, nil
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	listener, err := rpc.ListenPrivate(ctx, s.log, s.config.Socket)
	if err != nil {
		return err
	}
	s.health.AddLiveness("socket", listener.Check)
	grpcServer := rpc.NewServer(s.log, s.metrics, tracing.ServerOptions()...)
	allocationv1.RegisterConfigurationAllocatorServiceServer(grpcServer, s.server)
	s.log.Info("serving", zap.String("endpoint", s.config.Socket))
	return rpc.Serve(ctx, grpcServer, listener)
}

// checkReady connects to the socket, as clients do.
func (s *Service) checkReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return rpc.Probe(ctx, s.config.Socket)
}
