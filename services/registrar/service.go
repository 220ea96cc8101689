// Package registrar implements the service that keeps the node's table of Discovery Handlers.
package registrar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/registrar/internal/registry"
)

// registrationSocket is a fixed name: handlers in all languages use it.
const registrationSocket = "agent-registration.sock"

// Config of the service.
type Config struct {
	Socket             string        `help:"Address of the table of Discovery Handlers." default:"unix:///run/akri/registrar/registrar.sock" placeholder:"ADDRESS"`
	HandlersDir        string        `help:"Directory that Discovery Handlers mount. agent-registration.sock is created in it." default:"/var/lib/akri" env:"AKRI_HANDLERS_DIR,DISCOVERY_HANDLERS_DIRECTORY"`
	HandlersSocketMode fs.FileMode   `help:"Mode of agent-registration.sock, decimal or octal such as 0o660. A process that can write to the socket decides what brokers mount: widen the mode only for handlers that do not run as root." default:"0o600" placeholder:"MODE"`
	StateFile          string        `help:"File that keeps the table across restarts." default:"/run/akri/registrar/registrar.json"`
	KeepOffline        time.Duration `help:"Time after which an offline handler is removed from the table." default:"5m"`
}

// Service is the registrar.
type Service struct {
	config Config
	env    service.Env
}

// New returns a service, or all problems of the configuration. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	var problems []error
	if !filepath.IsAbs(config.HandlersDir) {
		problems = append(problems, fmt.Errorf("--handlers-dir %q: must be an absolute path", config.HandlersDir))
	}
	if !filepath.IsAbs(config.StateFile) {
		problems = append(problems, fmt.Errorf("--state-file %q: must be an absolute path", config.StateFile))
	}
	if config.KeepOffline <= 0 {
		problems = append(problems, fmt.Errorf("--keep-offline %v: must be more than 0", config.KeepOffline))
	}
	if config.HandlersSocketMode&^fs.ModePerm != 0 {
		problems = append(problems, fmt.Errorf("--handlers-socket-mode %#o: must be at most 0o777", uint32(config.HandlersSocketMode)))
	}
	return &Service{config: config, env: env}, errors.Join(problems...)
}

func (s *Service) registrationSocket() rpc.Socket {
	return rpc.Socket{
		Path: filepath.Join(s.config.HandlersDir, registrationSocket), Mode: s.config.HandlersSocketMode,
		DirectoryMode: 0o755, // handlers that run as other users need access
	}
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	store := registry.OpenStore(s.env.Log, s.config.StateFile, s.config.KeepOffline)
	tableListener, err := rpc.ListenPrivate(ctx, s.env.Log, s.config.Socket)
	if err != nil {
		return err
	}
	registrationListener, err := s.registrationSocket().Listen(ctx, s.env.Log)
	if err != nil {
		return errors.Join(err, tableListener.Close())
	}
	s.env.Health.AddLiveness("registrar socket", tableListener.Check)
	s.env.Health.AddLiveness("registration socket", registrationListener.Check)

	group, ctx := errgroup.WithContext(ctx)
	registrations := rpc.NewServer(s.env.Log, s.env.Metrics)
	discoveryv0.RegisterRegistrationServer(registrations, &registrationServer{
		log: s.env.Log, store: store, metrics: newMetrics(s.env.Metrics, store),
	})
	group.Go(func() error { return rpc.Serve(ctx, registrations, registrationListener) })
	table := rpc.NewServer(s.env.Log, s.env.Metrics)
	registrarv1.RegisterRegistrarServiceServer(table, &tableServer{store: store, stopping: ctx.Done()})
	group.Go(func() error { return rpc.Serve(ctx, table, tableListener) })
	group.Go(func() error { store.RunExpiry(ctx); return nil })
	s.env.Log.Info("serving", zap.String("handlers_dir", s.config.HandlersDir), zap.String("socket", s.config.Socket))
	return group.Wait()
}
