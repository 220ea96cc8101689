package handler

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	handlerv1 "akri.sh/proto/akri/handler/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// Identity describes a handler in its registration.
type Identity struct {
	// Name of the handler in `spec.discoveryHandler.name` of Configurations.
	Name string
	// Shared reports whether several nodes can see the same device.
	Shared bool
}

// Flags are the flags of every handler. Embed them in the handler's Config.
type Flags struct {
	DiscoveryHandlersDirectory string `help:"Directory of the registration socket and of the handler's own socket." env:"AKRI_DISCOVERY_HANDLERS_DIRECTORY,DISCOVERY_HANDLERS_DIRECTORY" default:"/var/lib/akri" placeholder:"DIR"`
	SocketName                 string `help:"Name of the handler's own socket without .sock, for a second handler with this name on the node. Empty: the handler's name." placeholder:"NAME"`
	PodIP                      string `name:"pod-ip" help:"IP address to serve on instead of a unix socket." env:"AKRI_POD_IP,POD_IP" placeholder:"IP"`
	Port                       uint16 `help:"Port to serve on with --pod-ip." default:"10000"`
}

// Server serves and registers a Handler.
type Server struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer
	handlerv1.UnimplementedExplainServiceServer

	identity Identity
	flags    Flags
	handler  Handler
	env      service.Env
	log      *zap.Logger
	metrics  *metrics
	state    *state
	stopping chan struct{}
}

var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// New checks the identity and the flags. It starts nothing.
func New(identity Identity, flags Flags, handler Handler, env service.Env) (*Server, error) {
	if !validName.MatchString(identity.Name) {
		return nil, fmt.Errorf("handler name %q: must consist of letters, digits, '-', '_' and '.'", identity.Name)
	}
	flags.SocketName = cmp.Or(flags.SocketName, identity.Name)
	if !validName.MatchString(flags.SocketName) || flags.SocketName+".sock" == registrationSocket {
		return nil, fmt.Errorf("--socket-name %q: must consist of letters, digits, '-', '_' and '.', and must not be that of the registrar", flags.SocketName)
	}
	if !filepath.IsAbs(flags.DiscoveryHandlersDirectory) {
		return nil, fmt.Errorf("--discovery-handlers-directory %q: must be an absolute path", flags.DiscoveryHandlersDirectory)
	}
	if flags.PodIP != "" && net.ParseIP(flags.PodIP) == nil {
		return nil, fmt.Errorf("--pod-ip %q: must be an IP address", flags.PodIP)
	}
	metrics := newMetrics(identity.Name, env.Metrics)
	s := &Server{
		identity: identity, flags: flags, handler: handler, env: env,
		log:      env.Log.With(zap.String("handler", identity.Name)),
		metrics:  metrics,
		state:    newState(metrics),
		stopping: make(chan struct{}),
	}
	env.Health.AddReadiness("registration of "+identity.Name, s.state.ready)
	env.Health.AddLiveness("directory of the registrar", rpc.CheckDirectory("unix://"+s.registrationSocket()))
	return s, nil
}

// Run serves and registers the handler until ctx ends. It returns an error if the registrar refuses
// the registration. Run may be called once.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(s.flags.DiscoveryHandlersDirectory, 0o700); err != nil {
		return fmt.Errorf("create the discovery handlers directory: %w", err)
	}
	listener, err := rpc.Listen(ctx, s.log, s.address())
	if err != nil {
		return err
	}
	s.env.Health.AddLiveness("socket of "+s.identity.Name, listener.Check)
	server := rpc.NewServer(s.log, s.env.Metrics)
	discoveryv0.RegisterDiscoveryHandlerServer(server, s)
	handlerv1.RegisterExplainServiceServer(server, s)
	group, ctx := errgroup.WithContext(ctx)
	// The server waits for open streams when it stops.
	context.AfterFunc(ctx, func() { close(s.stopping) })
	group.Go(func() error { return rpc.Serve(ctx, server, listener) })
	group.Go(func() error { return s.stayRegistered(ctx) })
	return group.Wait()
}

// address returns the address to serve on: a unix socket, or TCP with --pod-ip.
func (s *Server) address() string {
	if s.flags.PodIP != "" {
		return net.JoinHostPort(s.flags.PodIP, strconv.Itoa(int(s.flags.Port)))
	}
	return "unix://" + s.socket()
}

func (s *Server) socket() string {
	return filepath.Join(s.flags.DiscoveryHandlersDirectory, s.flags.SocketName+".sock")
}

func (s *Server) registrationSocket() string {
	return filepath.Join(s.flags.DiscoveryHandlersDirectory, registrationSocket)
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
