package resource

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

	allocationv1 "akri.sh/proto/akri/allocation/v1"
	"akri.sh/services/device-plugin-host/internal/node"
	"akri.sh/services/device-plugin-host/internal/slots"
)

const (
	// allocatorTimeout covers a restart of the allocator.
	allocatorTimeout = 3 * time.Second
	// attempts is how often a mapping is made anew because somebody else took a slot of it.
	attempts = 5
	// newsTimeout is how long to wait for word of what the slots look like now.
	newsTimeout = time.Second
)

// VirtualReserver takes slots for virtual devices.
type VirtualReserver interface {
	Reserver
	// Asked are the slots that were asked for without an answer that says who has them now. The same virtual device is to
	// get the same slot, or it could hold two.
	Asked() []node.Claim
}

// Configuration is `akri.sh/<configuration>`: virtual devices that get their slots when they are allocated.
type Configuration struct {
	name      string
	store     *node.Store
	reserver  VirtualReserver
	allocator allocationv1.ConfigurationAllocatorServiceClient

	mu     sync.Mutex
	state  *allocationv1.State // that the list below was made of
	listed []*pluginapi.Device
}

// NewConfiguration returns the resource of a Configuration.
func NewConfiguration(name string, store *node.Store, reserver VirtualReserver, allocator allocationv1.ConfigurationAllocatorServiceClient) *Configuration {
	return &Configuration{name: name, store: store, reserver: reserver, allocator: allocator}
}

// List returns the virtual devices that the allocator wants shown.
func (r *Configuration) List(ctx context.Context, view *node.View) ([]*pluginapi.Device, error) {
	state := view.State(view.Configurations[r.name])
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != nil && proto.Equal(r.state, state) {
		return r.listed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, allocatorTimeout)
	defer cancel()
	response, err := r.allocator.ListVirtualDevices(ctx, &allocationv1.ListVirtualDevicesRequest{State: state}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	r.state, r.listed = state, nil
	for _, id := range response.GetVirtualIds() {
		r.listed = append(r.listed, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	return r.listed, nil
}

// Prefer leaves the choice to the allocator.
func (r *Configuration) Prefer(ctx context.Context, request *pluginapi.ContainerPreferredAllocationRequest) ([]string, error) {
	view, _ := r.store.Get()
	ctx, cancel := context.WithTimeout(ctx, allocatorTimeout)
	defer cancel()
	response, err := r.allocator.PreferVirtualDevices(ctx, &allocationv1.PreferVirtualDevicesRequest{
		State:       view.State(view.Configurations[r.name], r.asked(request.GetAvailableDeviceIDs())...),
		Available:   request.GetAvailableDeviceIDs(),
		MustInclude: request.GetMustIncludeDeviceIDs(),
		Size:        uint32(max(0, request.GetAllocationSize())),
	}, grpc.WaitForReady(true))
	return response.GetVirtualIds(), err
}

// Allocate lets the allocator map the virtual devices to slots and takes those. When somebody else was faster, it maps
// them anew by what the slots look like then.
func (r *Configuration) Allocate(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	for attempt := 1; ; attempt++ {
		view, changed := r.store.Get()
		responses, err := r.allocate(ctx, view, containers)
		if err == nil || !slots.Refused(err) || attempt == attempts {
			return responses, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		case <-time.After(newsTimeout):
			return nil, err
		}
	}
}

func (r *Configuration) allocate(ctx context.Context, view *node.View, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	configuration, ok := view.Configurations[r.name]
	if !ok {
		return nil, status.Errorf(codes.Unavailable, "node %q sees no device of Configuration %q at the moment", view.Node, r.name)
	}
	mapped, err := r.mapToSlots(ctx, view.State(configuration, r.asked(slices.Concat(containers...))...), containers)
	if err != nil {
		return nil, err
	}
	var claims []node.Claim
	responses := make([]*pluginapi.ContainerAllocateResponse, 0, len(containers))
	for _, allocations := range mapped {
		devices := make([]node.Device, 0, len(allocations.GetAllocations()))
		for _, a := range allocations.GetAllocations() {
			device, ok := view.Devices[a.GetInstance()]
			if !ok {
				return nil, status.Errorf(codes.Unavailable, "virtual device %q is a slot of Instance %q, whose device node %q does not see at the moment",
					a.GetVirtualId(), a.GetInstance(), view.Node)
			}
			devices = append(devices, device)
			// Those that are claimed already too: it costs no write, and what we believe to hold may be out of date.
			claims = append(claims, node.ClaimOf(device.Instance, a.GetIndex(), a.GetVirtualId()))
		}
		responses = append(responses, container(devices))
	}
	return responses, r.reserver.Reserve(ctx, claims)
}

// asked are the slots that these virtual devices may have already. What others may have is free for all.
func (r *Configuration) asked(ids []string) []node.Claim {
	return slices.DeleteFunc(r.reserver.Asked(), func(claim node.Claim) bool { return !slices.Contains(ids, claim.VirtualID) })
}

func (r *Configuration) mapToSlots(ctx context.Context, state *allocationv1.State, containers [][]string) ([]*allocationv1.ContainerAllocation, error) {
	request := &allocationv1.AllocateRequest{State: state}
	for _, ids := range containers {
		request.Containers = append(request.Containers, &allocationv1.ContainerRequest{VirtualIds: ids})
	}
	ctx, cancel := context.WithTimeout(ctx, allocatorTimeout)
	defer cancel()
	response, err := r.allocator.Allocate(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return nil, status.Errorf(status.Code(err), "cannot choose devices of Configuration %q: %s", r.name, status.Convert(err).Message())
	}
	return response.GetContainers(), nil
}
