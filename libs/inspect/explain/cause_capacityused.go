package explain

import (
	"fmt"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// CapacityUsed means that all slots of the device are held. The message names the nodes and Pods
// that hold them.
const CapacityUsed CauseID = "CapacityUsed"

func init() {
	register(rule{CapacityUsed, LinkScheduled, 2, noFreeSlot})
}

// noFreeSlot examines what the Pod requests. The scheduler states only that it cannot allocate it.
func noFreeSlot(t target, report func(Cause)) {
	for _, name := range requestedDevices(t.pod) {
		slots := t.Slots(t.instancesOfResource(name)...)
		if (t.insufficient(name) || strings.Contains(t.refusal, notAllocated)) && int64(freeSlots(slots)) < DeviceRequests(t.pod)[name] {
			report(capacityUsed(akriv0.ResourceName(name), slots))
		}
	}
	for _, r := range t.unallocated() {
		if of, instances := r.exhausted(t.Snapshot); of != "" {
			report(capacityUsed(of, t.Slots(instances...)))
		}
	}
}

// exhausted returns the Instances without enough free slots for the request of a ResourceClaim, and
// their name in messages, which is empty if enough are free. If device plugins hold all slots of a
// device, it has no ResourceSlice.
func (r *request) exhausted(s *Snapshot) (of string, instances []*akriv0.Instance) {
	name, _ := resourceOfClass(r.DeviceClassName)
	instances = s.instancesOfResource(name)
	switch {
	case len(r.devices) == 0 && len(instances) > 0 && freeSlots(slotsOf(instances...)) == 0:
		return akriv0.ResourceName(name), instances
	case len(r.tolerated) >= r.count() && countFree(r.tolerated) < r.count():
		return "the devices for the " + r.String(), appendInstances(nil, r.tolerated)
	default:
		return "", nil
	}
}

// countFree counts the devices with a free slot. A device that the scheduler allocates only once is
// a slot. Nothing is known about the slots of a device that is removed.
func countFree(devices []candidate) int {
	free := 0
	for _, c := range devices {
		slots := slotsOf(c.instance)
		if c.device.Name != c.instance.Name {
			slots = slices.DeleteFunc(slots, func(slot Slot) bool { return slot.Slot != c.device.Name })
		}
		if freeSlots(slots) > 0 || len(slots) == 0 {
			free++
		}
	}
	return free
}

// capacityUsed returns the cause for the slots of a resource or of several devices. To delete a Pod
// that holds a slot is no remedy: the device works, and the Pod may be in use or created again.
func capacityUsed(of string, slots []Slot) Cause {
	cause := Cause{Message: fmt.Sprintf("%d of %s of %s held, by %s",
		len(slots)-freeSlots(slots), Plural(len(slots), "slot"), of, holders(slots))}

	if len(slots) > 0 {
		cause.Subject = subject("Instance", slots[0].Namespace, slots[0].Instance)
		cause.Remedies = append(cause.Remedies, remedy("Raise the capacity, if the device can serve more containers.",
			`kubectl patch configuration.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"capacity":CAPACITY}}'`,
			slots[0].Configuration, slots[0].Namespace))
	}
	return cause
}
