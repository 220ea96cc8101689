package plugin

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/rpc"
	"akri.sh/libs/tracing"
	"akri.sh/services/device-plugin-host/internal/kubelet"
)

// Server is the gRPC server of all device plugins. Each plugin has its own socket, because requests
// do not name the resource. They share one server, because one for each of hundreds of resources
// would waste memory.
type Server struct {
	pluginapi.UnimplementedDevicePluginServer
	grpc *grpc.Server

	mu       sync.Mutex
	sessions map[string]*session // by socket path
}

// NewServer returns a Server.
func NewServer(log *zap.Logger, metrics prometheus.Registerer) *Server {
	s := &Server{sessions: map[string]*session{}}
	s.grpc = rpc.NewServer(log, metrics, append(tracing.ServerOptions(), grpc.StatsHandler(statsHandler{s}))...)
	pluginapi.RegisterDevicePluginServer(s.grpc, s)
	return s
}

// Run waits until ctx ends, and then stops the server. Plugins add their listeners.
func (s *Server) Run(ctx context.Context) error { return rpc.Serve(ctx, s.grpc) }

// ResendDevices makes one of the plugins send its devices again. The kubelet then writes its
// checkpoint file.
func (s *Server) ResendDevices(context.Context, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.sessions {
		session.plugin.resend.Notify()
		return
	}
}

// serve serves the session on the listener until stop is called. stop closes the listener.
func (s *Server) serve(path string, listener net.Listener, session *session) (stop func()) {
	s.mu.Lock()
	s.sessions[path] = session
	s.mu.Unlock()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.grpc.Serve(listener) // returns when the listener or the server is closed
	}()
	return func() {
		_ = listener.Close()
		<-served
		s.waitForDisconnect(session)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, path)
	}
}

// session returns the session of the socket on which a request arrived.
func (s *Server) session(ctx context.Context) (*session, error) {
	client, ok := peer.FromContext(ctx)
	if !ok || client.LocalAddr == nil {
		return nil, status.Error(codes.Internal, "the connection has no local address")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.sessions[client.LocalAddr.String()]
	if session == nil {
		return nil, status.Errorf(codes.NotFound, "no device plugin serves %s any more", client.LocalAddr)
	}
	addConnection(ctx, session)
	return session, nil
}

// GetDevicePluginOptions implements the device plugin API.
func (s *Server) GetDevicePluginOptions(ctx context.Context, _ *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	if _, err := s.session(ctx); err != nil {
		return nil, err
	}
	return kubelet.Options, nil
}

// ListAndWatch implements the device plugin API. It sends the devices at the start and when they
// change.
func (s *Server) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	session, err := s.session(stream.Context())
	if err != nil {
		return err
	}
	return session.sendDevices(stream)
}

// Allocate implements the device plugin API.
func (s *Server) Allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	session, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	s.addAllocation(ctx, session)
	return session.plugin.allocate(ctx, request)
}

// GetPreferredAllocation implements the device plugin API.
func (s *Server) GetPreferredAllocation(
	ctx context.Context, request *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	session, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.GetContainerRequests() {
		ids, err := session.plugin.resource.prefer(ctx, container)
		if err != nil {
			return nil, fmt.Errorf("choose preferred devices of %s: %w", session.plugin.name, err)
		}
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return response, nil
}
