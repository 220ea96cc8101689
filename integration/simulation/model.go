package simulation

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Model holds what the nodes see and compares it with the Instances that a watch of the API server
// shows.
type Model struct {
	mu        sync.Mutex
	instances map[string]*state
	differing map[string]struct{}
	// matched is the last time at which all Instances became as expected.
	matched broadcast.Value[time.Time]
	deleted []string
}

// state is the state of one Instance.
type state struct {
	shared bool
	// collided means that a device was refused because of its digest. Its Instance is deleted with
	// the other device, and created again.
	collided bool
	seen     map[string]map[string]string // properties of the device by node that sees it
	holders  map[string]string            // by slot
	stored   *akriv0.Instance             // nil: none
}

// NewModel returns a Model without devices.
func NewModel() *Model {
	return &Model{instances: map[string]*state{}, differing: map[string]struct{}{}}
}

// Watch compares the Instances from now on, until ctx ends. It returns after the first list.
func (m *Model) Watch(ctx context.Context, client *kube.Client[*akriv0.Instance, *akriv0.InstanceList]) error {
	informer := kube.NewInformer(client, nil, nil)
	informer.OnEvent(func(before, after *akriv0.Instance) {
		if after == nil {
			m.observe(before.Name, nil)
		} else {
			m.observe(after.Name, after)
		}
	})
	go informer.RunWithContext(ctx)
	return kube.WaitForSync(ctx, informer)
}

func (m *Model) observe(name string, stored *akriv0.Instance) {
	m.change(name, func(s *state) {
		if stored == nil && len(s.seen) > 0 && !s.collided {
			m.deleted = append(m.deleted, name)
		}
		s.stored = stored
	})
}

func (m *Model) set(node string, device *instancev1.Device) {
	m.change(device.GetInstance(), func(s *state) {
		s.shared = device.GetShared()
		s.seen[node] = device.GetProperties()
		s.collided = s.collided || s.refused() > 0
	})
}

func (m *Model) remove(name, node string) {
	m.change(name, func(s *state) { delete(s.seen, node) })
}

// Hold sets the holder of a slot. Empty: the slot is free.
func (m *Model) Hold(name, slot, holder string) {
	m.change(name, func(s *state) { s.holders[slot] = holder })
}

// RemoveNode removes a node from all devices.
func (m *Model) RemoveNode(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.instances {
		if _, sees := s.seen[node]; sees {
			delete(s.seen, node)
			m.compare(name, s)
		}
	}
}

func (m *Model) change(name string, change func(*state)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.instances[name]
	if s == nil {
		s = &state{seen: map[string]map[string]string{}, holders: map[string]string{}}
		m.instances[name] = s
	}
	change(s)
	m.compare(name, s)
}

// compare is called with the lock.
func (m *Model) compare(name string, s *state) {
	if s.difference() != "" {
		m.differing[name] = struct{}{}
		return
	}
	if _, found := m.differing[name]; found {
		delete(m.differing, name)
		if len(m.differing) == 0 {
			m.matched.Set(time.Now())
		}
	}
}

// difference returns how the stored Instance differs from what is expected. Empty: it does not.
func (s *state) difference() string {
	if s.stored == nil || len(s.seen) == 0 {
		if s.stored == nil && len(s.seen) == 0 {
			return ""
		}
		return fmt.Sprintf("%d nodes see it, an Instance exists: %t", len(s.seen), s.stored != nil)
	}
	spec := s.stored.Spec
	if expected := len(s.seen) - s.refused(); len(spec.Nodes) != expected {
		return fmt.Sprintf("has %d nodes, expected %d", len(spec.Nodes), expected)
	}
	for _, node := range spec.Nodes {
		if _, sees := s.seen[node]; !sees {
			return "has node " + node
		}
	}
	if expected := s.seen[spec.Nodes[0]]; !maps.Equal(spec.BrokerProperties, expected) {
		return fmt.Sprintf("has properties %v, expected %v", spec.BrokerProperties, expected)
	}
	for slot, holder := range spec.DeviceUsage {
		if holder != s.holders[slot] {
			return fmt.Sprintf("slot %s has holder %q, expected %q", slot, holder, s.holders[slot])
		}
	}
	return ""
}

// refused is the number of nodes whose local device has a digest collision: all but one.
func (s *state) refused() int {
	if s.shared || len(s.seen) == 0 {
		return 0
	}
	return len(s.seen) - 1
}

// Refused returns the number of devices with a digest collision.
func (m *Model) Refused() (count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.instances {
		count += s.refused()
	}
	return count
}

// Matches reports whether an Instance is as expected.
func (m *Model) Matches(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, differs := m.differing[name]
	return !differs
}

// Differing returns the number of Instances that are not as expected.
func (m *Model) Differing() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.differing)
}

// Deleted returns the names of Instances that were deleted while a node saw their device. Callers
// must not add a device again before its Instance is deleted.
func (m *Model) Deleted() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deleted
}

// Await waits until all Instances are as expected and returns the time at which they became so.
func (m *Model) Await(ctx context.Context) (time.Time, error) {
	for {
		matched, changed := m.matched.Get()
		if m.Differing() == 0 {
			return matched, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for Instances: %w: %s", ctx.Err(), m.example())
		}
	}
}

func (m *Model) example() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.differing {
		return fmt.Sprintf("%d Instances differ, such as %s: %s", len(m.differing), name, m.instances[name].difference())
	}
	return "all match"
}
