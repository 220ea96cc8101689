// Package registrar is the service that keeps the node's table of Discovery Handlers: they register here, and the mesh
// watches.
package registrar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// registrationSocket is the name that handlers of all languages know.
const registrationSocket = "agent-registration.sock"

// Config of the service.
type Config struct {
	Socket             string        `help:"Address to serve the table on." default:"unix:///run/akri/registrar.sock" placeholder:"ADDRESS"`
	HandlersDir        string        `help:"Folder that Discovery Handlers mount; agent-registration.sock is made there." default:"/var/lib/akri" env:"AKRI_HANDLERS_DIR,DISCOVERY_HANDLERS_DIRECTORY"`
	HandlersSocketMode fs.FileMode   `help:"Mode of agent-registration.sock. Who can write to it can make brokers mount what it likes: widen it only for handlers that do not run as root. Decimal, or octal as 0o660." default:"0o600" placeholder:"MODE"`
	StateFile          string        `help:"File that keeps the table over a restart." default:"/run/akri/registrar.json"`
	KeepOffline        time.Duration `help:"How long a handler that is offline stays in the table." default:"5m"`
}

// Service is the registrar.
type Service struct {
	config Config
	env    service.Env
}

// New checks the configuration. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	var problems []error
	if !filepath.IsAbs(config.HandlersDir) {
		problems = append(problems, fmt.Errorf("--handlers-dir %q: want an absolute path", config.HandlersDir))
	}
	if !filepath.IsAbs(config.StateFile) {
		problems = append(problems, fmt.Errorf("--state-file %q: want an absolute path", config.StateFile))
	}
	if config.KeepOffline <= 0 {
		problems = append(problems, fmt.Errorf("--keep-offline %v: want more than 0", config.KeepOffline))
	}
	if config.HandlersSocketMode&^fs.ModePerm != 0 {
		problems = append(problems, fmt.Errorf("--handlers-socket-mode %#o: want at most 0o777", uint32(config.HandlersSocketMode)))
	}
	return &Service{config: config, env: env}, errors.Join(problems...)
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	store := openStore(s.env.Log, s.config.StateFile, s.config.KeepOffline)
	forHandlers, forMesh, err := s.listen(ctx)
	if err != nil {
		return err
	}
	own, err := rpc.Dial(s.config.Socket, s.env.Metrics)
	if err != nil {
		return errors.Join(err, forHandlers.Close(), forMesh.Close())
	}
	defer own.Close()
	s.env.Health.AddLiveness("registrar socket", answers(own))

	group, ctx := errgroup.WithContext(ctx)
	registrations := rpc.NewServer(s.env.Log, s.env.Metrics)
	discoveryv0.RegisterRegistrationServer(registrations, &registration{
		log: s.env.Log, store: store, metrics: newMetrics(s.env.Metrics, store),
	})
	group.Go(func() error { return rpc.Serve(ctx, registrations, forHandlers) })
	mesh := rpc.NewServer(s.env.Log, s.env.Metrics)
	registrarv1.RegisterRegistrarServiceServer(mesh, &table{store: store, stopping: ctx.Done()})
	group.Go(func() error { return rpc.Serve(ctx, mesh, forMesh) })
	group.Go(func() error { store.expire(ctx); return nil })
	s.env.Log.Info("serving", zap.String("handlers_dir", s.config.HandlersDir), zap.String("socket", s.config.Socket))
	return group.Wait()
}

func (s *Service) listen(ctx context.Context) (forHandlers, forMesh net.Listener, err error) {
	// Handlers of other users must get in.
	if err := os.MkdirAll(s.config.HandlersDir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make handlers folder: %w", err)
	}
	forMesh, err = rpc.Listen(ctx, s.config.Socket)
	if err != nil {
		return nil, nil, err
	}
	forHandlers, err = rpc.ListenUnix(ctx, filepath.Join(s.config.HandlersDir, registrationSocket), s.config.HandlersSocketMode)
	if err != nil {
		return nil, nil, errors.Join(err, forMesh.Close())
	}
	return forHandlers, forMesh, nil
}

// answers checks a server of this process the way that its clients see it.
func answers(conn *grpc.ClientConn) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
		return err
	}
}
