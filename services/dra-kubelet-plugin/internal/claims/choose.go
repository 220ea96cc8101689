package claims

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/dra-kubelet-plugin/internal/metadata"
)

// allocated is a device that the scheduler allocated to a claim.
type allocated struct {
	*instancev1.AllocatedDevice
	node.Device
	// slot is the index of the slot that the scheduler chose, or -1 if it counts slots only.
	slot int
}

// request returns the name of the request in the claim. That of an alternative is
// `<request>/<alternative>`.
func (a allocated) request() string {
	name, _, _ := strings.Cut(a.GetRequest(), "/")
	return name
}

// exclusive reports whether the device takes a slot. Admin access does not.
func (a allocated) exclusive() bool { return !a.GetAdminAccess() }

// devicesOf returns the devices of an allocation. It fails if this node does not see one of them: a
// broker must not start without its device.
func devicesOf(allocation []*instancev1.AllocatedDevice, snapshot *node.Snapshot) ([]allocated, error) {
	var devices []allocated
	for _, result := range allocation {
		namespace, name := akriv0.InstanceOfDevice(result.GetPool(), result.GetDevice())
		device, exists := snapshot.Devices[name]
		slot, err := akriv0.SlotIndex(name, result.GetDevice())
		if result.GetDevice() == name {
			slot, err = -1, nil
		}
		if !exists || device.Instance.GetNamespace() != namespace || err != nil {
			return nil, status.Errorf(codes.NotFound, "node %q does not see the device of Instance %q", snapshot.Node, namespace+"/"+name)
		}
		devices = append(devices, allocated{result, device, slot})
	}
	return devices, nil
}

// containers returns what the containers with a request get, by request.
func containers(devices []allocated) map[string]*pluginapi.ContainerAllocateResponse {
	byRequest := map[string][]node.Device{}
	for _, device := range devices {
		byRequest[device.request()] = append(byRequest[device.request()], device.Device)
	}
	all := map[string]*pluginapi.ContainerAllocateResponse{}
	for request, devices := range byRequest {
		all[request] = node.ForContainer(devices)
	}
	return all
}

// described returns the devices as their metadata describes them.
func described(devices []allocated) []metadata.Device {
	all := make([]metadata.Device, 0, len(devices))
	for _, device := range devices {
		all = append(all, metadata.Device{AllocatedDevice: device.AllocatedDevice, Device: device.Device})
	}
	return all
}

// choose returns a slot for each device. It keeps those of the previous slots that are of the same
// Instances, because their reservation may have succeeded.
func (m *Manager) choose(uid string, devices []allocated, previous []node.SlotClaim, snapshot *node.Snapshot) ([]node.SlotClaim, error) {
	var chosen []node.SlotClaim
	previous = slices.Clone(previous)
	for _, device := range devices {
		if !device.exclusive() {
			continue
		}
		ofInstance := func(claim node.SlotClaim) bool {
			return claim.Namespace == device.Instance.GetNamespace() && claim.Instance == device.Instance.GetName()
		}
		if i := slices.IndexFunc(previous, ofInstance); i >= 0 {
			chosen = append(chosen, previous[i])
			previous = slices.Delete(previous, i, i+1)
			continue
		}
		claim, err := m.chooseSlot(uid, device, chosen, snapshot)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, claim)
	}
	return chosen, nil
}

// chooseSlot returns a slot that the claim holds already, because its file was lost in a reboot, or
// else a free one, the one of the scheduler if possible.
func (m *Manager) chooseSlot(uid string, device allocated, chosen []node.SlotClaim, snapshot *node.Snapshot) (node.SlotClaim, error) {
	var best *node.SlotClaim
	var prepared []string
	instance := device.Instance
	rank := func(index uint32) int64 {
		if int64(index) == int64(device.slot) {
			return -1
		}
		return int64(snapshot.Rank(instance, index))
	}
	for index := range instance.GetCapacity() {
		claim := node.NewSlotClaim(instance, index, "")
		claim.ClaimUID = uid
		if slices.Contains(chosen, claim) {
			continue
		}
		switch snapshot.SlotState(claim) {
		case node.SlotHeld:
			return claim, nil
		case node.SlotFree:
			if other := m.preparedWith(claim); other != "" {
				prepared = append(prepared, other)
				continue
			}
			if best == nil || rank(index) < rank(best.Index) {
				best = &claim
			}
		case node.SlotTaken, node.SlotAbsent:
		}
	}
	if best == nil {
		return node.SlotClaim{}, status.Errorf(codes.FailedPrecondition, "all slots of Instance %q are reserved: by %s",
			instance.GetName(), strings.Join(holders(instance, snapshot.Node, prepared), ", "))
	}
	return *best, nil
}

// preparedWith returns the other claim that is prepared with the slot, or nothing. The Instance
// records the slot as free if it was created again, until the slot is taken back.
func (m *Manager) preparedWith(claim node.SlotClaim) (uid string) {
	has := func(uid string, slots []node.SlotClaim) bool {
		same := claim
		same.ClaimUID = uid
		return uid != claim.ClaimUID && slices.Contains(slots, same)
	}
	for uid, slots := range m.prepared {
		if !has(uid, slots) {
			continue
		}
		if slots, _ := m.load(uid); has(uid, slots) { // not unprepared by another instance of the service
			return uid
		}
	}
	return ""
}

// holders describes who holds the slots of the Instance. The node has prepared claims whose slots
// are recorded as free.
func holders(instance *instancev1.Instance, thisNode string, prepared []string) []string {
	var holders []string
	ofClaim := func(uid, node string) string { return "a ResourceClaim with uid " + uid + " on node " + node }
	for _, uid := range prepared {
		holders = append(holders, ofClaim(uid, thisNode))
	}
	for _, slot := range instance.GetSlots() {
		switch {
		case slot.GetClaim() != nil:
			holders = append(holders, ofClaim(slot.GetClaim().GetUid(), slot.GetClaim().GetNode()))
		case slot.GetHolder() != nil:
			holders = append(holders, "a device plugin on node "+slot.GetHolder().GetNode())
		case slot.GetFree() == nil:
			holders = append(holders, "a malformed value")
		}
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}
