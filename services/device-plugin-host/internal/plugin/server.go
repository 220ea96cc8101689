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

const (
	// disconnectTimeout is how long the kubelet may take to close its connection to a plugin that
	// stopped.
	disconnectTimeout = 5 * time.Second
	// allocationTimeout is how long running Allocate calls may delay the end of a plugin. The
	// server stops a second later.
	allocationTimeout = 4 * time.Second
)

// session is one registration of a plugin: one socket.
type session struct {
	plugin *plugin
	// closed is closed when the session ends and the devices are final.
	closed <-chan struct{}
	// end makes the registration invalid.
	end func()

	// The fields below are guarded by Server.mu. Only connections with a request are counted: those
	// of the kubelet.
	connections  int
	disconnected chan struct{} // closed when the last connection ended; nil before the first connection
	registered   bool
	allocating   int
	allocated    broadcast.Signal // an Allocate call was answered
}

// endIfAbandoned ends the session if the kubelet closed its connection after the registration. The
// kubelet may do so before it requests the devices.
func (s *session) endIfAbandoned() {
	if s.registered && s.disconnected != nil && s.connections == 0 {
		s.end()
	}
}

// sendDevices sends the devices whenever they are set.
func (s *session) sendDevices(stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	var sent *[]*pluginapi.Device
	for {
		devices, changed := s.plugin.devices.Get()
		if sent != devices {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: *devices}); err != nil {
				return err
			}
			sent = devices
		}

		select {
		case <-changed:
		case <-s.closed:
			return s.sendFinal(stream, *sent)
		case <-stream.Context().Done():
			// The kubelet lost track of this plugin or stopped. It does not always close its
			// connection then.
			s.end()
			return nil
		}
	}
}

// sendFinal sends the final devices if they differ from those that were sent.
func (s *session) sendFinal(stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse], sent []*pluginapi.Device) error {
	devices, _ := s.plugin.devices.Get()
	if equal(sent, *devices) {
		return nil
	}
	return stream.Send(&pluginapi.ListAndWatchResponse{Devices: *devices})
}

// setRegistered records that the kubelet accepted the registration.
func (s *Server) setRegistered(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.registered = true
	session.endIfAbandoned()
}

// waitForDisconnect waits until the kubelet closed its connection. While the kubelet still
// processes the end of a plugin, it would take a new plugin of the same resource for the old one
// and set its devices unhealthy.
func (s *Server) waitForDisconnect(session *session) {
	s.mu.Lock()
	disconnected := session.disconnected
	s.mu.Unlock()
	if disconnected == nil {
		return
	}
	select {
	case <-disconnected:
	case <-time.After(disconnectTimeout):
	}
}

// waitForAllocations waits until all Allocate calls are answered. The kubelet closes the connection
// when ListAndWatch ends, and a Pod fails if the kubelet does not receive the response of its
// Allocate call.
func (s *Server) waitForAllocations(session *session) {
	timeout := time.After(allocationTimeout)
	for {
		s.mu.Lock()
		running := session.allocating
		s.mu.Unlock()
		if running == 0 {
			return
		}
		select {
		case <-session.allocated:
		case <-timeout:
			return
		}
	}
}

// statsHandler observes connections and Allocate calls. It implements gRPC's stats.Handler.
type statsHandler struct{ server *Server }

// connection and allocation are put into the contexts of connections and Allocate calls. Their
// session is nil before the first request and before the handler runs, respectively.
type (
	connection    struct{ session *session }
	connectionKey struct{}
	allocation    struct{ session *session }
	allocationKey struct{}
)

// TagConn implements stats.Handler.
func (statsHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

// HandleConn implements stats.Handler.
func (h statsHandler) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, ended := event.(*stats.ConnEnd); !ended {
		return
	}
	if conn, ok := ctx.Value(connectionKey{}).(*connection); ok {
		h.server.removeConnection(conn)
	}
}

// addConnection counts the connection of a request. The caller holds Server.mu.
func addConnection(ctx context.Context, session *session) {
	conn, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || conn.session != nil {
		return
	}
	conn.session = session
	if session.connections == 0 {
		session.disconnected = make(chan struct{})
	}
	session.connections++
}

func (s *Server) removeConnection(conn *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := conn.session
	if session == nil {
		return
	}
	if session.connections--; session.connections == 0 {
		close(session.disconnected)
	}
	session.endIfAbandoned()
}

// TagRPC implements stats.Handler.
func (statsHandler) TagRPC(ctx context.Context, call *stats.RPCTagInfo) context.Context {
	if call.FullMethodName != pluginapi.DevicePlugin_Allocate_FullMethodName {
		return ctx
	}
	return context.WithValue(ctx, allocationKey{}, &allocation{})
}

// HandleRPC implements stats.Handler.
func (h statsHandler) HandleRPC(ctx context.Context, event stats.RPCStats) {
	call, ok := ctx.Value(allocationKey{}).(*allocation)
	if _, ended := event.(*stats.End); !ended || !ok || call.session == nil {
		return
	}
	h.server.mu.Lock()
	call.session.allocating--
	h.server.mu.Unlock()
	call.session.allocated.Notify()
}

func (s *Server) addAllocation(ctx context.Context, session *session) {
	if call, ok := ctx.Value(allocationKey{}).(*allocation); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		call.session = session
		session.allocating++
	}
}
