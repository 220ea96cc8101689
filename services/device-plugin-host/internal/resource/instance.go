package resource

import (
	"context"
	"hash/fnv"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/node"
)

// Reserver takes slots for this node, all or none, and returns once they are held. Its errors are gRPC statuses.
type Reserver interface {
	Reserve(ctx context.Context, claims []node.Claim) error
}

// Instance is `akri.sh/<instance>`: one device id for each slot.
type Instance struct {
	name     string
	store    *node.Store
	reserver Reserver
}

// NewInstance returns the resource of an Instance.
func NewInstance(name string, store *node.Store, reserver Reserver) *Instance {
	return &Instance{name: name, store: store, reserver: reserver}
}

// List returns the slots below the capacity, and those above it that this node still holds. One that this node cannot
// give to a pod, because another node or the Configuration-level resource holds it, is unhealthy.
func (r *Instance) List(_ context.Context, view *node.View) ([]*pluginapi.Device, error) {
	var devices []*pluginapi.Device
	instance := view.Devices[r.name].Instance
	for _, slot := range instance.GetSlots() {
		own := ownedBy(slot, view.Node)
		if slot.GetIndex() >= instance.GetCapacity() && !own {
			continue
		}
		health := pluginapi.Unhealthy
		if own || slot.GetFree() != nil {
			health = pluginapi.Healthy
		}
		devices = append(devices, &pluginapi.Device{ID: akriv0.SlotName(r.name, int(slot.GetIndex())), Health: health})
	}
	return devices, nil
}

func ownedBy(slot *instancev1.Slot, name string) bool {
	holder := slot.GetHolder()
	return holder != nil && holder.GetNode() == name && holder.VirtualId == nil
}

// Prefer chooses free slots before those that this node still holds for a pod that is gone. Each node starts at another
// slot, so that two that allocate at once rarely want the same.
func (r *Instance) Prefer(_ context.Context, request *pluginapi.ContainerPreferredAllocationRequest) ([]string, error) {
	view, _ := r.store.Get()
	instance := view.Devices[r.name].Instance
	rank := map[string]uint32{}
	for _, slot := range instance.GetSlots() {
		order := (slot.GetIndex() + start(view.Node)) % max(1, instance.GetCapacity())
		if slot.GetFree() == nil {
			order += instance.GetCapacity()
		}
		rank[akriv0.SlotName(r.name, int(slot.GetIndex()))] = order
	}
	chosen := slices.Clone(request.GetMustIncludeDeviceIDs())
	available := slices.SortedFunc(slices.Values(request.GetAvailableDeviceIDs()), func(a, b string) int { return int(rank[a]) - int(rank[b]) })
	for _, id := range available {
		if len(chosen) < int(request.GetAllocationSize()) && !slices.Contains(chosen, id) {
			chosen = append(chosen, id)
		}
	}
	return chosen, nil
}

func start(name string) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	return hash.Sum32() % 1024
}

// Allocate takes the slots of all containers, and tells what each container receives.
func (r *Instance) Allocate(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	view, _ := r.store.Get()
	device, ok := view.Devices[r.name]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "the device of Instance %q is not seen by node %q at the moment", r.name, view.Node)
	}
	var claims []node.Claim
	responses := make([]*pluginapi.ContainerAllocateResponse, 0, len(containers))
	for _, ids := range containers {
		var devices []node.Device // several slots of one device still are one device
		for _, id := range ids {
			devices = []node.Device{device}
			claim, err := claimOf(device.Instance, id)
			if err != nil {
				return nil, err
			}
			claims = append(claims, claim)
		}
		responses = append(responses, container(devices))
	}
	if err := r.reserver.Reserve(ctx, claims); err != nil {
		return nil, err
	}
	return responses, nil
}

func claimOf(instance *instancev1.Instance, id string) (node.Claim, error) {
	index, err := akriv0.SlotIndex(instance.GetName(), id)
	if err != nil {
		return node.Claim{}, status.Error(codes.InvalidArgument, err.Error())
	}
	for _, slot := range instance.GetSlots() {
		if slot.GetIndex() == uint32(index) {
			return node.ClaimOf(instance, slot.GetIndex(), ""), nil
		}
	}
	return node.Claim{}, status.Errorf(codes.NotFound, "Instance %q has no slot %q: its capacity is %d", instance.GetName(), id, instance.GetCapacity())
}
