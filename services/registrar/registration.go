package registrar

import (
	"context"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/registrar/internal/registry"
)

// registration is what Discovery Handlers see: the frozen v0 contract.
type registration struct {
	discoveryv0.UnimplementedRegistrationServer
	log     *zap.Logger
	store   *store
	metrics metrics
}

// RegisterDiscoveryHandler answers once the handler is in the table and the table is saved.
func (r *registration) RegisterDiscoveryHandler(
	_ context.Context, request *discoveryv0.RegisterDiscoveryHandlerRequest,
) (*discoveryv0.Empty, error) {
	log := r.log.With(zap.String("handler", request.GetName()), zap.String("endpoint", request.GetEndpoint()))
	key, err := parse(request)
	if err != nil {
		r.metrics.refused.Inc()
		log.Warn("registration refused", zap.Error(err))
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	network := request.GetEndpointType() == discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK
	back, err := r.store.register(key, network, request.GetShared())
	if err != nil {
		r.metrics.refused.Inc()
		log.Warn("registration refused", zap.Error(err))
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	r.metrics.accepted.Inc()
	level := zap.DebugLevel
	if back {
		level = zap.InfoLevel
	}
	log.Log(level, "discovery handler registered", zap.Bool("shared", request.GetShared()))
	return &discoveryv0.Empty{}, nil
}

func parse(request *discoveryv0.RegisterDiscoveryHandlerRequest) (registry.Key, error) {
	if err := registry.CheckName(request.GetName()); err != nil {
		return registry.Key{}, err
	}
	normalize, err := normalizer(request.GetEndpointType())
	if err != nil {
		return registry.Key{}, err
	}
	endpoint, err := normalize(request.GetEndpoint())
	if err != nil {
		return registry.Key{}, err
	}
	return registry.Key{Name: request.GetName(), Endpoint: endpoint}, nil
}
