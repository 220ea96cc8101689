// Package udev is the Discovery Handler for devices of the node's kernel. It selects them by udev
// rules.
package udev

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
	"akri.sh/services/handler-udev/internal/discovery"
	"akri.sh/services/handler-udev/internal/monitor"
	"akri.sh/services/handler-udev/internal/udevdb"
)

// Config holds the flags of the handler.
type Config struct {
	handler.Flags

	ResyncInterval time.Duration `help:"How often all devices are listed even without an event." default:"30s"`
	UdevDatabase   string        `help:"Directory of the udev database, watched for changes." default:"/run/udev/data" placeholder:"DIR"`
}

// Service is the handler.
type Service struct {
	resyncInterval time.Duration
	inventory      *discovery.Inventory
	monitor        *monitor.Monitor
	server         *handler.Server
}

// New returns the handler.
func New(config Config, env service.Env) (*Service, error) {
	if config.ResyncInterval <= 0 {
		return nil, fmt.Errorf("--resync-interval %s: must be greater than 0", config.ResyncInterval)
	}
	metrics := newMetrics(env.Metrics)
	directory := filepath.Clean(config.UdevDatabase)
	database := &udevdb.Database{Runtime: filepath.Dir(directory)}
	inventory := discovery.NewInventory(database, metrics.observe, metrics.uninitialized.Inc, env.Log)
	// Not shared: a device of the kernel is on one node.
	server, err := handler.New(handler.Identity{Name: "udev"}, config.Flags, inventory, env)
	if err != nil {
		return nil, err
	}
	return &Service{
		resyncInterval: config.ResyncInterval,
		inventory:      inventory,
		monitor: &monitor.Monitor{
			Handler: inventory, DatabaseDir: directory, Devpath: database.Devpath,
			CountLost: metrics.lost.Inc, Log: env.Log,
		},
		server: server,
	}, nil
}

// Run monitors devices and serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.monitor.Run(ctx) })
	group.Go(func() error { return s.inventory.Run(ctx, s.resyncInterval) })
	group.Go(func() error { return s.server.Run(ctx) })
	return group.Wait()
}
