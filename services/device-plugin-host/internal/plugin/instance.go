package plugin

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// instanceResource is akri.sh/<instance>. It has one device for each slot.
type instanceResource struct {
	name  string
	store *node.Store
	slots *slots.Manager
}

func (r *instanceResource) level() string { return "instance" }

// list returns the slots below the capacity, and slots above it that this node still holds. A slot
// that another node or the Configuration-level resource holds is unhealthy.
func (r *instanceResource) list(_ context.Context, snapshot *node.Snapshot) ([]*pluginapi.Device, error) {
	var devices []*pluginapi.Device
	instance := snapshot.Devices[r.name].Instance
	for _, slot := range instance.GetSlots() {
		held := snapshot.Holds(slot) && slot.GetHolder().VirtualId == nil
		if slot.GetIndex() >= instance.GetCapacity() && !held {
			continue
		}
		health := pluginapi.Unhealthy
		if held || slot.GetFree() != nil {
			health = pluginapi.Healthy
		}
		devices = append(devices, &pluginapi.Device{ID: akriv0.SlotName(r.name, int(slot.GetIndex())), Health: health})
	}
	return devices, nil
}

// prefer chooses free slots before slots that this node still holds for a Pod that has ended.
func (r *instanceResource) prefer(_ context.Context, request *pluginapi.ContainerPreferredAllocationRequest) ([]string, error) {
	snapshot, _ := r.store.Get()
	instance := snapshot.Devices[r.name].Instance
	rank := map[string]uint32{}
	for _, slot := range instance.GetSlots() {
		order := snapshot.Rank(instance, slot.GetIndex())
		if slot.GetFree() == nil {
			order += instance.GetCapacity()
		}
		rank[akriv0.SlotName(r.name, int(slot.GetIndex()))] = order
	}
	chosen := slices.Clone(request.GetMustIncludeDeviceIDs())
	available := slices.SortedFunc(slices.Values(request.GetAvailableDeviceIDs()), func(a, b string) int {
		return int(rank[a]) - int(rank[b])
	})
	for _, id := range available {
		if len(chosen) < int(request.GetAllocationSize()) && !slices.Contains(chosen, id) {
			chosen = append(chosen, id)
		}
	}
	return chosen, nil
}

// allocate reserves the slots of all containers.
func (r *instanceResource) allocate(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	snapshot, _ := r.store.Get()
	device, ok := snapshot.Devices[r.name]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "node %q does not see the device of Instance %q", snapshot.Node, r.name)
	}
	var claims []node.SlotClaim
	responses := make([]*pluginapi.ContainerAllocateResponse, 0, len(containers))
	for _, ids := range containers {
		var devices []node.Device // several slots are still one device
		for _, id := range ids {
			devices = []node.Device{device}
			claim, err := parseSlot(device.Instance, id)
			if err != nil {
				return nil, err
			}
			claims = append(claims, claim)
		}
		responses = append(responses, node.ForContainer(devices))
	}
	if err := r.slots.Reserve(ctx, claims); err != nil {
		return nil, err
	}
	return responses, nil
}

func parseSlot(instance *instancev1.Instance, id string) (node.SlotClaim, error) {
	index, err := akriv0.SlotIndex(instance.GetName(), id)
	if err != nil {
		return node.SlotClaim{}, status.Error(codes.InvalidArgument, err.Error())
	}
	for _, slot := range instance.GetSlots() {
		if slot.GetIndex() == uint32(index) {
			return node.NewSlotClaim(instance, slot.GetIndex(), ""), nil
		}
	}
	return node.SlotClaim{}, status.Errorf(codes.NotFound, "Instance %q has no slot %q: its capacity is %d",
		instance.GetName(), id, instance.GetCapacity())
}
