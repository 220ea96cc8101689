package plugin

import (
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// removalDelay is how long the kubelet may still use a device after it chose it or after Allocate
// returned it.
const removalDelay = 2 * time.Second

// deviceList is the list of devices that a plugin sends to the kubelet. A device that no longer
// exists is sent as unhealthy first, so that the kubelet does not choose it, and is removed after
// removalDelay. The kubelet looks a device up again after Allocate and panics if it is not in the
// list (ManagerImpl.allocateContainerResources in k8s.io/kubernetes/pkg/kubelet/cm/devicemanager).
type deviceList struct {
	mu         sync.Mutex
	devices    []*pluginapi.Device
	removeAt   map[string]time.Time // of devices that no longer exist
	allocating map[string]int       // number of running Allocate calls
}

func newDeviceList() *deviceList {
	return &deviceList{removeAt: map[string]time.Time{}, allocating: map[string]int{}}
}

// update returns the list to send for the existing devices. It must be called again after the
// returned delay, or not before the next change if the delay is 0.
func (l *deviceList) update(existing []*pluginapi.Device, now time.Time) (list []*pluginapi.Device, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	exists := map[string]bool{}
	for _, device := range existing {
		exists[device.GetID()] = true
		delete(l.removeAt, device.GetID())
	}
	list = slices.Clone(existing)
	for _, previous := range l.devices {
		id := previous.GetID()
		if exists[id] {
			continue
		}
		if _, ok := l.removeAt[id]; !ok {
			l.removeAt[id] = now.Add(removalDelay)
		}
		remaining := l.removeAt[id].Sub(now)
		if remaining <= 0 && l.allocating[id] == 0 {
			delete(l.removeAt, id)
			continue
		}
		list = append(list, &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy})
		if l.allocating[id] == 0 && (delay == 0 || remaining < delay) { // endAllocate triggers an update for the others
			delay = remaining
		}
	}
	slices.SortStableFunc(list[len(existing):], func(a, b *pluginapi.Device) int { return strings.Compare(a.GetID(), b.GetID()) })
	l.devices = list
	return list, delay
}

// beginAllocate keeps the devices in the list until endAllocate. It returns an error and keeps none
// if one of them is not in the list.
func (l *deviceList) beginAllocate(ids []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if !slices.ContainsFunc(l.devices, func(device *pluginapi.Device) bool { return device.GetID() == id }) {
			return status.Errorf(codes.NotFound, "device %q no longer exists on this node", id)
		}
	}
	for _, id := range ids {
		l.allocating[id]++
	}
	return nil
}

func (l *deviceList) endAllocate(ids []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if l.allocating[id]--; l.allocating[id] == 0 {
			delete(l.allocating, id)
		}
		if _, ok := l.removeAt[id]; ok {
			l.removeAt[id] = now.Add(removalDelay)
		}
	}
}
