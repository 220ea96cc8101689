package registrar

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/registrar/internal/registry"
)

// table is what the mesh sees.
type table struct {
	registrarv1.UnimplementedRegistrarServiceServer
	store *store
	// stopping is closed when the process is to end: a watch would otherwise hold it.
	stopping <-chan struct{}
}

// WatchHandlers sends the table now and after each change.
func (t *table) WatchHandlers(_ *registrarv1.WatchHandlersRequest, stream grpc.ServerStreamingServer[registrarv1.WatchHandlersResponse]) error {
	for {
		handlers, changed := t.store.snapshot()
		if err := stream.Send(&registrarv1.WatchHandlersResponse{Handlers: toProto(handlers)}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-t.stopping:
			return status.Error(codes.Unavailable, "the registrar is stopping")
		}
	}
}

// ListHandlers returns the table once.
func (t *table) ListHandlers(context.Context, *registrarv1.ListHandlersRequest) (*registrarv1.ListHandlersResponse, error) {
	handlers, _ := t.store.snapshot()
	return &registrarv1.ListHandlersResponse{Handlers: toProto(handlers)}, nil
}

// ReportHandlerStatus takes all reports of a call or, when one is malformed, none.
func (t *table) ReportHandlerStatus(
	_ context.Context, request *registrarv1.ReportHandlerStatusRequest,
) (*registrarv1.ReportHandlerStatusResponse, error) {
	reports := make([]report, 0, len(request.GetReports()))
	for _, r := range request.GetReports() {
		parsed, known := statuses[r.GetStatus()]
		if !known {
			return nil, status.Errorf(codes.InvalidArgument, "status %v of handler %q: want WAITING, ACTIVE or OFFLINE", r.GetStatus(), r.GetName())
		}
		reports = append(reports, report{registry.Key{Name: r.GetName(), Endpoint: r.GetEndpoint()}, r.GetRegistration(), parsed})
	}
	t.store.report(reports)
	return &registrarv1.ReportHandlerStatusResponse{}, nil
}

var statuses = map[registrarv1.HandlerStatus]registry.Status{
	registrarv1.HandlerStatus_HANDLER_STATUS_WAITING: registry.Waiting,
	registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE:  registry.Active,
	registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE: registry.Offline,
}

func normalizer(kind discoveryv0.RegisterDiscoveryHandlerRequest_EndpointType) (func(string) (string, error), error) {
	switch kind {
	case discoveryv0.RegisterDiscoveryHandlerRequest_UDS:
		return registry.NormalizePath, nil
	case discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK:
		return registry.NormalizeHostPort, nil
	default:
		return nil, fmt.Errorf("endpoint type %d: want UDS (0) or NETWORK (1)", kind)
	}
}

func toProto(handlers []registry.Handler) []*registrarv1.Handler {
	list := make([]*registrarv1.Handler, 0, len(handlers))
	for _, handler := range handlers {
		one := &registrarv1.Handler{
			Name: handler.Name, Endpoint: handler.Endpoint, EndpointType: registrarv1.EndpointType_ENDPOINT_TYPE_UDS,
			Shared: handler.Shared, Registration: handler.Registration,
		}
		if handler.Network {
			one.EndpointType = registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK
		}
		for number, name := range statuses {
			if name == handler.Status {
				one.Status = number
			}
		}
		if handler.Status == registry.Offline {
			one.OfflineSince = timestamppb.New(handler.OfflineSince)
		}
		list = append(list, one)
	}
	return list
}
