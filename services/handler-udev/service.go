// Package udev is the Discovery Handler for devices that the node's kernel knows, selected by udev rules.
package udev

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
	"akri.sh/services/handler-udev/internal/inventory"
	"akri.sh/services/handler-udev/internal/udevdb"
)

// Config is what the handler is told by flags and environment.
type Config struct {
	handler.Flags

	ResyncInterval time.Duration `help:"How often all devices are looked at although no event told of a change." default:"30s"`
	UdevDatabase   string        `help:"Folder of udev's database; its changes are events where udev's own do not arrive." default:"/run/udev/data" placeholder:"DIR"`
}

// Service is the handler.
type Service struct {
	config    Config
	database  *udevdb.Database
	inventory *inventory.Inventory
	metrics   *inventory.Metrics
	server    *handler.Server
	log       *zap.Logger
}

// New returns the handler, ready to run.
func New(config Config, env service.Env) (*Service, error) {
	if config.ResyncInterval <= 0 {
		return nil, fmt.Errorf("--resync-interval %s: want more than 0", config.ResyncInterval)
	}
	metrics := inventory.NewMetrics(env.Metrics)
	database := &udevdb.Database{}
	devices := inventory.New(database, metrics, env.Log)
	// Not shared: a device of a kernel is on one node.
	server, err := handler.New(handler.Identity{Name: "udev"}, config.Flags, handler.Watch(devices.Discover), env)
	if err != nil {
		return nil, err
	}
	return &Service{config: config, database: database, inventory: devices, metrics: metrics, server: server, log: env.Log}, nil
}

// Run hears events, keeps the devices true and serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.hearKernel(ctx) })
	group.Go(func() error { return s.hearDatabase(ctx) })
	group.Go(func() error { return s.inventory.Run(ctx, s.config.ResyncInterval) })
	group.Go(func() error { return s.server.Run(ctx) })
	return group.Wait()
}
