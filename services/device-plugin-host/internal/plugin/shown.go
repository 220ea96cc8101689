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

// linger is for how long the kubelet may be busy with a device that it chose, or that it was just granted.
const linger = 2 * time.Second

// shown are the devices that the kubelet is shown. One that is there no more is unhealthy first, so that it is chosen no
// more, and left out a while later: the kubelet looks a device up again once its Allocate was granted, and does
// not survive that there is none (ManagerImpl.allocateContainerResources in k8s.io/kubernetes/pkg/kubelet/cm/devicemanager).
type shown struct {
	mu      sync.Mutex
	devices []*pluginapi.Device
	leaving map[string]time.Time // until when, for those that are there no more
	busy    map[string]int       // Allocates that run
}

func newShown() *shown {
	return &shown{leaving: map[string]time.Time{}, busy: map[string]int{}}
}

// update returns what to show when these devices are there, and when to ask again if nothing changes; 0: never.
func (s *shown) update(devices []*pluginapi.Device, now time.Time) (show []*pluginapi.Device, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[string]bool{}
	for _, device := range devices {
		there[device.GetID()] = true
		delete(s.leaving, device.GetID())
	}
	show = slices.Clone(devices)
	for _, former := range s.devices {
		id := former.GetID()
		if there[id] {
			continue
		}
		until, leaving := s.leaving[id]
		if !leaving {
			until = now.Add(linger)
			s.leaving[id] = until
		}
		wait := until.Sub(now)
		if wait <= 0 && s.busy[id] == 0 {
			delete(s.leaving, id)
			continue
		}
		show = append(show, &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy})
		if s.busy[id] == 0 && (again == 0 || wait < again) { // a busy one is asked about when it is released
			again = wait
		}
	}
	slices.SortStableFunc(show[len(devices):], func(a, b *pluginapi.Device) int { return strings.Compare(a.GetID(), b.GetID()) })
	s.devices = show
	return show, again
}

// hold keeps the devices shown until they are released. It refuses those that are not: the kubelet chose them long ago.
func (s *shown) hold(ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if !slices.ContainsFunc(s.devices, func(device *pluginapi.Device) bool { return device.GetID() == id }) {
			return status.Errorf(codes.NotFound, "device %q is not offered any more", id)
		}
	}
	for _, id := range ids {
		s.busy[id]++
	}
	return nil
}

func (s *shown) release(ids []string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.busy[id]--; s.busy[id] == 0 {
			delete(s.busy, id)
		}
		if _, leaving := s.leaving[id]; leaving {
			s.leaving[id] = now.Add(linger)
		}
	}
}
