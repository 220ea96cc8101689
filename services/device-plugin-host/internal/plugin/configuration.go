package plugin

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
)

const (
	// allocatorTimeout includes a restart of config-plugin-allocator.
	allocatorTimeout = 3 * time.Second
	// maxAttempts is how often virtual devices are mapped to slots if another node reserves the
	// slots first.
	maxAttempts = 5
	// changeTimeout is how long to wait for the new state of the slots between two attempts.
	changeTimeout = time.Second
)

// configurationResource is akri.sh/<configuration>. It has virtual devices, which get their slots
// in Allocate.
type configurationResource struct {
	name      string
	store     *node.Store
	slots     *slots.Manager
	allocator allocationv1.ConfigurationAllocatorServiceClient

	mu      sync.Mutex
	state   *allocationv1.State // from which devices was computed
	devices []*pluginapi.Device
}

func (r *configurationResource) level() string { return "configuration" }

// list returns the virtual devices that config-plugin-allocator computes from the state of the
// slots.
func (r *configurationResource) list(ctx context.Context, snapshot *node.Snapshot) ([]*pluginapi.Device, error) {
	state := snapshot.AllocationState(snapshot.Configurations[r.name])
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != nil && proto.Equal(r.state, state) {
		return r.devices, nil
	}
	ctx, cancel := context.WithTimeout(ctx, allocatorTimeout)
	defer cancel()
	request := &allocationv1.ListVirtualDevicesRequest{State: state}
	response, err := r.allocator.ListVirtualDevices(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	r.state, r.devices = state, nil
	for _, id := range response.GetVirtualIds() {
		r.devices = append(r.devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	return r.devices, nil
}

// prefer returns the choice of config-plugin-allocator.
func (r *configurationResource) prefer(ctx context.Context, request *pluginapi.ContainerPreferredAllocationRequest) ([]string, error) {
	snapshot, _ := r.store.Get()
	ctx, cancel := context.WithTimeout(ctx, allocatorTimeout)
	defer cancel()
	response, err := r.allocator.PreferVirtualDevices(ctx, &allocationv1.PreferVirtualDevicesRequest{
		State:       snapshot.AllocationState(snapshot.Configurations[r.name], r.pending(request.GetAvailableDeviceIDs())...),
		Available:   request.GetAvailableDeviceIDs(),
		MustInclude: request.GetMustIncludeDeviceIDs(),
		Size:        uint32(max(0, request.GetAllocationSize())),
	}, grpc.WaitForReady(true))
	return response.GetVirtualIds(), err
}

// allocate maps the virtual devices to slots with config-plugin-allocator, and reserves the slots.
// If another node has reserved one of them, it waits for the new state of the slots and tries
// again.
func (r *configurationResource) allocate(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	for attempt := 1; ; attempt++ {
		snapshot, changed := r.store.Get()
		responses, err := r.tryAllocate(ctx, snapshot, containers)
		if err == nil || !slots.Refused(err) || attempt == maxAttempts {
			return responses, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		case <-time.After(changeTimeout):
			return nil, err
		}
	}
}

func (r *configurationResource) tryAllocate(
	ctx context.Context, snapshot *node.Snapshot, containers [][]string,
) ([]*pluginapi.ContainerAllocateResponse, error) {
	configuration, ok := snapshot.Configurations[r.name]
	if !ok {
		return nil, status.Errorf(codes.Unavailable, "node %q sees no device of Configuration %q", snapshot.Node, r.name)
	}
	pending := r.pending(slices.Concat(containers...))
	allocated, err := r.mapToSlots(ctx, snapshot.AllocationState(configuration, pending...), containers)
	if err != nil {
		return nil, err
	}
	var claims []node.SlotClaim
	responses := make([]*pluginapi.ContainerAllocateResponse, 0, len(containers))
	for _, container := range allocated {
		devices := make([]node.Device, 0, len(container.GetAllocations()))
		for _, a := range container.GetAllocations() {
			device, ok := snapshot.Devices[a.GetInstance()]
			if !ok {
				return nil, status.Errorf(codes.Unavailable,
					"virtual device %q is a slot of Instance %q, and node %q does not see its device",
					a.GetVirtualId(), a.GetInstance(), snapshot.Node)
			}
			devices = append(devices, device)
			// Slots that are held already are reserved again, because the snapshot may be out of
			// date.
			claims = append(claims, node.NewSlotClaim(device.Instance, a.GetIndex(), a.GetVirtualId()))
		}
		responses = append(responses, node.ForContainer(devices))
	}
	return responses, r.slots.Reserve(ctx, claims)
}

// pending returns the slots that these virtual devices may hold. Pending slots of other virtual
// devices count as free.
func (r *configurationResource) pending(ids []string) []node.SlotClaim {
	return slices.DeleteFunc(r.slots.Pending(), func(claim node.SlotClaim) bool { return !slices.Contains(ids, claim.VirtualID) })
}

func (r *configurationResource) mapToSlots(
	ctx context.Context, state *allocationv1.State, containers [][]string,
) ([]*allocationv1.ContainerAllocation, error) {
	request := &allocationv1.AllocateRequest{State: state}
	for _, ids := range containers {
		request.Containers = append(request.Containers, &allocationv1.ContainerRequest{VirtualIds: ids})
	}
	ctx, cancel := context.WithTimeout(ctx, allocatorTimeout)
	defer cancel()
	response, err := r.allocator.Allocate(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return nil, status.Errorf(status.Code(err), "choose devices of Configuration %q: %s", r.name, status.Convert(err).Message())
	}
	return response.GetContainers(), nil
}
