package allocator

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	allocationv1 "akri.sh/proto/akri/allocation/v1"
	"akri.sh/services/config-plugin-allocator/internal/policy"
)

// server implements the API with package policy.
type server struct {
	allocationv1.UnimplementedConfigurationAllocatorServiceServer
	metrics *metrics
}

func (s *server) ListVirtualDevices(
	_ context.Context, request *allocationv1.ListVirtualDevicesRequest,
) (*allocationv1.ListVirtualDevicesResponse, error) {
	return &allocationv1.ListVirtualDevicesResponse{VirtualIds: policy.List(request.GetState().GetInstances())}, nil
}

func (s *server) Allocate(_ context.Context, request *allocationv1.AllocateRequest) (*allocationv1.AllocateResponse, error) {
	containers, err := policy.Allocate(request.GetState().GetInstances(), request.GetContainers())
	s.metrics.allocated(err)
	if err != nil {
		return nil, toStatus(err)
	}
	return &allocationv1.AllocateResponse{Containers: containers}, nil
}

func (s *server) PreferVirtualDevices(
	_ context.Context, request *allocationv1.PreferVirtualDevicesRequest,
) (*allocationv1.PreferVirtualDevicesResponse, error) {
	ids, err := policy.Prefer(
		request.GetState().GetInstances(), request.GetAvailable(), request.GetMustInclude(), int(request.GetSize()))
	if err != nil {
		return nil, toStatus(err)
	}
	return &allocationv1.PreferVirtualDevicesResponse{VirtualIds: ids}, nil
}

// toStatus maps the kind of error to a code.
func toStatus(err error) error {
	for kind, code := range map[error]codes.Code{
		policy.ErrInvalid: codes.InvalidArgument, policy.ErrExhausted: codes.ResourceExhausted,
	} {
		if errors.Is(err, kind) {
			return status.Error(code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
