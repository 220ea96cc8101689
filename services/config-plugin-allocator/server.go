package allocator

import (
	"context"
	"errors"
	"strings"

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
	return &allocationv1.ListVirtualDevicesResponse{VirtualIds: policy.List(instances(request.GetState()))}, nil
}

func (s *server) Allocate(_ context.Context, request *allocationv1.AllocateRequest) (*allocationv1.AllocateResponse, error) {
	containers := make([][]string, 0, len(request.GetContainers()))
	for _, container := range request.GetContainers() {
		containers = append(containers, container.GetVirtualIds())
	}
	allocations, err := policy.Allocate(instances(request.GetState()), containers)
	s.metrics.allocated(err)
	if err != nil {
		return nil, toStatus(err)
	}
	return allocateResponse(allocations), nil
}

func (s *server) PreferVirtualDevices(
	_ context.Context, request *allocationv1.PreferVirtualDevicesRequest,
) (*allocationv1.PreferVirtualDevicesResponse, error) {
	ids, err := policy.Prefer(
		instances(request.GetState()), request.GetAvailable(), request.GetMustInclude(), int(request.GetSize()))
	if err != nil {
		return nil, toStatus(err)
	}
	return &allocationv1.PreferVirtualDevicesResponse{VirtualIds: ids}, nil
}

func instances(state *allocationv1.State) []policy.Instance {
	result := make([]policy.Instance, 0, len(state.GetInstances()))
	for _, instance := range state.GetInstances() {
		claims := make([]policy.Claim, 0, len(instance.GetClaimedSlots()))
		for _, slot := range instance.GetClaimedSlots() {
			claims = append(claims, policy.Claim{VirtualID: slot.GetVirtualId(), Index: slot.GetIndex()})
		}
		result = append(result, policy.Instance{Name: instance.GetName(), Free: instance.GetFreeSlots(), Claimed: claims})
	}
	return result
}

func allocateResponse(containers [][]policy.Allocation) *allocationv1.AllocateResponse {
	response := &allocationv1.AllocateResponse{}
	for _, allocations := range containers {
		container := &allocationv1.ContainerAllocation{}
		for _, a := range allocations {
			container.Allocations = append(container.Allocations, &allocationv1.Allocation{
				VirtualId: a.VirtualID, Instance: a.Slot.Instance, Index: a.Slot.Index, Reserve: a.Reserve,
			})
		}
		response.Containers = append(response.Containers, container)
	}
	return response
}

// toStatus maps the kind of error to a code and removes it from the message, which users read in
// `kubectl describe pod`.
func toStatus(err error) error {
	for kind, code := range map[error]codes.Code{
		policy.ErrInvalid: codes.InvalidArgument, policy.ErrExhausted: codes.ResourceExhausted,
	} {
		if errors.Is(err, kind) {
			return status.Error(code, strings.TrimPrefix(err.Error(), kind.Error()+": "))
		}
	}
	return status.Error(codes.Internal, err.Error())
}
