package handler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	discoveryv0 "akri.sh/proto/v0"
)

// Identity is what a handler is to Akri.
type Identity struct {
	// Name as Configurations say it in `discoveryHandler.name`.
	Name string
	// Shared tells whether several nodes can see the same device.
	Shared bool
}

// Flags say where a handler meets Akri; embed them in a handler's Config.
type Flags struct {
	DiscoveryHandlersDirectory string `help:"Folder of Akri's registration socket and of the handler's own." env:"AKRI_DISCOVERY_HANDLERS_DIRECTORY,DISCOVERY_HANDLERS_DIRECTORY" default:"/var/lib/akri" placeholder:"DIR"`
	PodIP                      string `name:"pod-ip" help:"Serve on this address instead of a socket in the folder." env:"AKRI_POD_IP,POD_IP" placeholder:"IP"`
	Port                       uint16 `help:"Port to serve on when --pod-ip is set." default:"10000"`
}

// Server is a Discovery Handler that Akri can use.
type Server struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer

	identity Identity
	flags    Flags
	handler  Handler
	env      service.Env
	log      *zap.Logger
	metrics  *metrics
	presence *presence
	stopping chan struct{}
}

var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// New checks everything that can be checked before the handler runs.
func New(identity Identity, flags Flags, handler Handler, env service.Env) (*Server, error) {
	if !validName.MatchString(identity.Name) {
		return nil, fmt.Errorf("handler name %q: want letters, digits, '-', '_' and '.'", identity.Name)
	}
	if !filepath.IsAbs(flags.DiscoveryHandlersDirectory) {
		return nil, fmt.Errorf("--discovery-handlers-directory %q: want an absolute path", flags.DiscoveryHandlersDirectory)
	}
	if flags.PodIP != "" && net.ParseIP(flags.PodIP) == nil {
		return nil, fmt.Errorf("--pod-ip %q: want an IP address", flags.PodIP)
	}
	metrics := newMetrics(identity.Name, env.Metrics)
	s := &Server{
		identity: identity, flags: flags, handler: handler, env: env,
		log:      env.Log.With(zap.String("handler", identity.Name)),
		metrics:  metrics,
		presence: newPresence(metrics),
		stopping: make(chan struct{}),
	}
	env.Health.AddReadiness("registration of "+identity.Name, s.presence.ready)
	return s, nil
}

// Run serves, registers and stays registered until ctx ends. It returns early when Akri refuses the registration. A
// Server runs once.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(s.flags.DiscoveryHandlersDirectory, 0o700); err != nil {
		return fmt.Errorf("make handlers' folder: %w", err)
	}
	listener, err := rpc.Listen(ctx, s.address())
	if err != nil {
		return err
	}
	server := rpc.NewServer(s.log, s.env.Metrics)
	discoveryv0.RegisterDiscoveryHandlerServer(server, s)
	own, err := rpc.Dial(s.address(), s.env.Metrics)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { _ = own.Close() }()
	s.env.Health.AddLiveness("socket of "+s.identity.Name, func(ctx context.Context) error {
		_, err := healthv1.NewHealthClient(own).Check(ctx, &healthv1.HealthCheckRequest{})
		return err
	})
	group, ctx := errgroup.WithContext(ctx)
	// Open streams end first: the server waits for them.
	context.AfterFunc(ctx, func() { close(s.stopping) })
	group.Go(func() error { return rpc.Serve(ctx, server, listener) })
	group.Go(func() error { return s.stayRegistered(ctx) })
	return group.Wait()
}

// address is where the handler serves: a socket of its own, or the network when it has a pod address.
func (s *Server) address() string {
	if s.flags.PodIP != "" {
		return net.JoinHostPort(s.flags.PodIP, strconv.Itoa(int(s.flags.Port)))
	}
	return "unix://" + s.socket()
}

func (s *Server) socket() string {
	return filepath.Join(s.flags.DiscoveryHandlersDirectory, s.identity.Name+".sock")
}

func (s *Server) registration() *discoveryv0.RegisterDiscoveryHandlerRequest {
	request := &discoveryv0.RegisterDiscoveryHandlerRequest{
		Name: s.identity.Name, Shared: s.identity.Shared,
		Endpoint: s.socket(), EndpointType: discoveryv0.RegisterDiscoveryHandlerRequest_UDS,
	}
	if s.flags.PodIP != "" {
		request.Endpoint = "http://" + s.address()
		request.EndpointType = discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK
	}
	return request
}
