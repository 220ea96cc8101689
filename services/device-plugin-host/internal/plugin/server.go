// Package plugin serves extended resources to the kubelet by the device plugin API v1beta1.
package plugin

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/services/device-plugin-host/internal/kubelet"
)

// Server is one gRPC server for all resources: each has a socket of its own, because requests do not name the resource,
// but a server of its own for each of hundreds would be waste.
type Server struct {
	pluginapi.UnimplementedDevicePluginServer
	grpc *grpc.Server

	mu       sync.Mutex
	sessions map[string]*session // by the path of the socket
}

// session is one resource on one socket.
type session struct {
	plugin *Plugin
	// over closes when the session is over and devices are final.
	over <-chan struct{}
	// end makes the registration void.
	end func()
}

// NewServer returns a Server that answers through the gRPC server.
func NewServer(server *grpc.Server) *Server {
	s := &Server{grpc: server, sessions: map[string]*session{}}
	pluginapi.RegisterDevicePluginServer(server, s)
	return s
}

// attach serves the session on the listener until detach is called.
func (s *Server) attach(path string, listener net.Listener, own *session) (detach func()) {
	s.mu.Lock()
	s.sessions[path] = own
	s.mu.Unlock()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.grpc.Serve(listener) // ends when the listener or the server is closed
	}()
	return func() {
		_ = listener.Close()
		<-served
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, path)
	}
}

// Resend makes one of the plugins send its devices again, which makes the kubelet write its checkpoint.
func (s *Server) Resend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, own := range s.sessions {
		select {
		case own.plugin.resend <- struct{}{}:
		default:
		}
		return
	}
}

func (s *Server) session(ctx context.Context) (*session, error) {
	caller, ok := peer.FromContext(ctx)
	if !ok || caller.LocalAddr == nil {
		return nil, status.Error(codes.Internal, "the connection has no local address")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.sessions[caller.LocalAddr.String()]; own != nil {
		return own, nil
	}
	return nil, status.Errorf(codes.NotFound, "no resource is served on %s any more", caller.LocalAddr)
}

// GetDevicePluginOptions is part of the device plugin API.
func (s *Server) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return kubelet.Options, nil
}

// ListAndWatch is part of the device plugin API. It sends the devices at the start and again when they change.
func (s *Server) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	own, err := s.session(stream.Context())
	if err != nil {
		return err
	}
	return own.watch(stream)
}

// Allocate is part of the device plugin API.
func (s *Server) Allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	own, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	return own.plugin.allocate(ctx, request)
}

// GetPreferredAllocation is part of the device plugin API.
func (s *Server) GetPreferredAllocation(ctx context.Context, request *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	own, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.GetContainerRequests() {
		ids, err := own.plugin.Resource.Prefer(ctx, container)
		if err != nil {
			return nil, fmt.Errorf("prefer devices of %s: %w", own.plugin.Name, err)
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return response, nil
}

// PreStartContainer is part of the device plugin API. Our options say that nobody needs to call it.
func (s *Server) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}
