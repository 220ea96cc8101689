package registrar

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/registrar/internal/registry"
)

// registrationServer implements the frozen v0 contract that Discovery Handlers call.
type registrationServer struct {
	discoveryv0.UnimplementedRegistrationServer
	log     *zap.Logger
	store   *registry.Store
	metrics metrics
}

// RegisterDiscoveryHandler returns after the handler is in the table and the table is saved.
func (s *registrationServer) RegisterDiscoveryHandler(
	_ context.Context, request *discoveryv0.RegisterDiscoveryHandlerRequest,
) (*discoveryv0.Empty, error) {
	log := s.log.With(zap.String("handler", request.GetName()), zap.String("endpoint", request.GetEndpoint()))
	key, err := keyOf(request)
	if err != nil {
		s.metrics.refused.Inc()
		log.Warn("registration refused", zap.Error(err))
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	network := request.GetEndpointType() == discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK
	available, err := s.store.Register(key, network, request.GetShared())
	if err != nil {
		s.metrics.refused.Inc()
		log.Warn("registration refused", zap.Error(err))
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	s.metrics.accepted.Inc()
	level := zap.DebugLevel
	if available {
		level = zap.InfoLevel
	}
	log.Log(level, "discovery handler registered", zap.Bool("shared", request.GetShared()))
	return &discoveryv0.Empty{}, nil
}

func keyOf(request *discoveryv0.RegisterDiscoveryHandlerRequest) (registry.Key, error) {
	if err := registry.ValidateName(request.GetName()); err != nil {
		return registry.Key{}, err
	}
	endpoint, err := normalize(request.GetEndpointType(), request.GetEndpoint())
	if err != nil {
		return registry.Key{}, err
	}
	return registry.Key{Name: request.GetName(), Endpoint: endpoint}, nil
}

func normalize(kind discoveryv0.RegisterDiscoveryHandlerRequest_EndpointType, endpoint string) (string, error) {
	switch kind {
	case discoveryv0.RegisterDiscoveryHandlerRequest_UDS:
		return registry.NormalizePath(endpoint)
	case discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK:
		return registry.NormalizeHostPort(endpoint)
	default:
		return "", fmt.Errorf("endpoint type %d: must be UDS (0) or NETWORK (1)", kind)
	}
}

// tableServer serves the table to the other services of the node.
type tableServer struct {
	registrarv1.UnimplementedRegistrarServiceServer
	store *registry.Store
	// stopping is closed when the process stops; an open watch would otherwise delay it.
	stopping <-chan struct{}
}

// WatchHandlers sends the table at once and after each change.
func (s *tableServer) WatchHandlers(
	_ *registrarv1.WatchHandlersRequest, stream grpc.ServerStreamingServer[registrarv1.WatchHandlersResponse],
) error {
	for {
		handlers, changed := s.store.Handlers()
		if err := stream.Send(&registrarv1.WatchHandlersResponse{Handlers: toProto(handlers)}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopping:
			return status.Error(codes.Unavailable, "the registrar is stopping")
		}
	}
}

// ListHandlers returns the table.
func (s *tableServer) ListHandlers(context.Context, *registrarv1.ListHandlersRequest) (*registrarv1.ListHandlersResponse, error) {
	handlers, _ := s.store.Handlers()
	return &registrarv1.ListHandlersResponse{Handlers: toProto(handlers)}, nil
}

// ReportHandlerStatus applies all reports of a call, or none if one is malformed.
func (s *tableServer) ReportHandlerStatus(
	_ context.Context, request *registrarv1.ReportHandlerStatusRequest,
) (*registrarv1.ReportHandlerStatusResponse, error) {
	for _, report := range request.GetReports() {
		if registry.StatusName(report.GetStatus()) == "" {
			return nil, status.Errorf(codes.InvalidArgument, "status %v of handler %q: must be WAITING, ACTIVE or OFFLINE",
				report.GetStatus(), report.GetName())
		}
	}
	s.store.Report(request.GetReports())
	return &registrarv1.ReportHandlerStatusResponse{}, nil
}

func toProto(handlers []registry.Handler) []*registrarv1.Handler {
	list := make([]*registrarv1.Handler, 0, len(handlers))
	for _, handler := range handlers {
		message := &registrarv1.Handler{
			Name: handler.Name, Endpoint: handler.Endpoint, EndpointType: registrarv1.EndpointType_ENDPOINT_TYPE_UDS,
			Shared: handler.Shared, Status: handler.Status, Registration: handler.Registration,
			Order: handler.Order,
		}
		if handler.Network {
			message.EndpointType = registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK
		}
		if handler.Status == registry.Offline {
			message.OfflineSince, message.OfflineCause = timestamppb.New(handler.OfflineSince), handler.OfflineCause
		}
		list = append(list, message)
	}
	return list
}
