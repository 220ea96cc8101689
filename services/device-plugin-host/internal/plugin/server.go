// Package plugin serves extended resources to the kubelet by the device plugin API v1beta1.
package plugin

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	"akri.sh/services/device-plugin-host/internal/kubelet"
)

// hangUpWithin is how long the kubelet may take to close its connection to a plugin that ended.
const hangUpWithin = 5 * time.Second

// answerWithin is how long running Allocates may keep a plugin from ending; the server ends a second later.
const answerWithin = 4 * time.Second

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

	// These have the Server's lock. Callers are connections on which something was asked: there is one, the kubelet's.
	callers    int
	alone      chan struct{} // closes when the last of them left; nil: there was none yet
	registered bool
	allocating int
	answered   broadcast.Signal // an Allocate was answered
}

// NewServer returns a Server; Serve answers.
func NewServer(log *zap.Logger, metrics prometheus.Registerer) *Server {
	s := &Server{sessions: map[string]*session{}}
	s.grpc = rpc.NewServer(log, metrics, grpc.StatsHandler(connections{s}))
	pluginapi.RegisterDevicePluginServer(s.grpc, s)
	return s
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error { return rpc.Serve(ctx, s.grpc) }

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
		s.awaitAlone(own)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, path)
	}
}

// awaitAlone waits until the kubelet closed its connection. It finds plugins by the names of their resources only: while it is
// still busy with the end of one, it would take the next one of that name for it, and keep that one's devices unhealthy.
func (s *Server) awaitAlone(own *session) {
	s.mu.Lock()
	alone := own.alone
	s.mu.Unlock()
	if alone == nil {
		return
	}
	select {
	case <-alone:
	case <-time.After(hangUpWithin):
	}
}

// awaitAnswered waits until no Allocate is without its answer: the kubelet hangs up when ListAndWatch ends, and a pod whose
// Allocate it does not hear of fails.
func (s *Server) awaitAnswered(own *session) {
	over := time.After(answerWithin)
	for {
		s.mu.Lock()
		running := own.allocating
		s.mu.Unlock()
		if running == 0 {
			return
		}
		select {
		case <-own.answered:
		case <-over:
			return
		}
	}
}

// joined notes who calls.
func (s *Server) joined(caller *connection, own *session) {
	if caller == nil || caller.session != nil {
		return
	}
	caller.session = own
	if own.callers == 0 {
		own.alone = make(chan struct{})
	}
	own.callers++
}

// left notes that a caller is gone. When it was the last one the kubelet gave the plugin up, also one whose devices it never
// asked for.
func (s *Server) left(caller *connection) {
	s.mu.Lock()
	own := caller.session
	if own != nil {
		if own.callers--; own.callers == 0 {
			close(own.alone)
		}
	}
	void := own != nil && own.void()
	s.mu.Unlock()
	if void {
		own.end()
	}
}

// confirm notes that the kubelet accepted the registration.
func (s *Server) confirm(own *session) {
	s.mu.Lock()
	own.registered = true
	void := own.void()
	s.mu.Unlock()
	if void {
		own.end()
	}
}

func (s *session) void() bool { return s.registered && s.alone != nil && s.callers == 0 }

// connections is told of the connections to a Server.
type connections struct{ server *Server }

// connection is one of them.
type connection struct{ session *session }

type connectionKey struct{}

// TagConn is part of gRPC's stats.Handler.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

// HandleConn is part of gRPC's stats.Handler.
func (c connections) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, ended := event.(*stats.ConnEnd); ended {
		if caller, ok := ctx.Value(connectionKey{}).(*connection); ok {
			c.server.left(caller)
		}
	}
}

// allocation is an Allocate until its answer is on its way.
type allocation struct{ session *session }

type allocationKey struct{}

// TagRPC is part of gRPC's stats.Handler.
func (connections) TagRPC(ctx context.Context, call *stats.RPCTagInfo) context.Context {
	if call.FullMethodName != pluginapi.DevicePlugin_Allocate_FullMethodName {
		return ctx
	}
	return context.WithValue(ctx, allocationKey{}, &allocation{})
}

// HandleRPC is part of gRPC's stats.Handler.
func (c connections) HandleRPC(ctx context.Context, event stats.RPCStats) {
	running, ok := ctx.Value(allocationKey{}).(*allocation)
	if _, ended := event.(*stats.End); !ended || !ok || running.session == nil {
		return
	}
	c.server.mu.Lock()
	running.session.allocating--
	c.server.mu.Unlock()
	running.session.answered.Notify()
}

func (s *Server) allocates(ctx context.Context, own *session) {
	if running, ok := ctx.Value(allocationKey{}).(*allocation); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		running.session = own
		own.allocating++
	}
}

// Resend makes one of the plugins send its devices again, which makes the kubelet write its checkpoint.
func (s *Server) Resend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, own := range s.sessions {
		own.plugin.resend.Notify()
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
		connection, _ := ctx.Value(connectionKey{}).(*connection)
		s.joined(connection, own)
		return own, nil
	}
	return nil, status.Errorf(codes.NotFound, "no resource is served on %s any more", caller.LocalAddr)
}

// GetDevicePluginOptions is part of the device plugin API.
func (s *Server) GetDevicePluginOptions(ctx context.Context, _ *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	if _, err := s.session(ctx); err != nil {
		return nil, err
	}
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
	s.allocates(ctx, own)
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
