package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
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

// state is the state of the Instances with one short name: one of a shared device, or one for each
// node that sees a local device.
type state struct {
	shared  bool
	seen    map[string]map[string]string // properties of the device by node that sees it
	holders map[string]string            // by slot
	stored  map[string]*akriv0.Instance  // by name
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
	m.change(akriv0.ShortInstanceName(name), func(s *state) {
		previous := s.stored[name]
		if stored != nil {
			s.stored[name] = stored
			return
		}
		delete(s.stored, name)
		if previous != nil && (s.shared && len(s.seen) > 0 || slices.ContainsFunc(previous.Spec.Nodes, s.sees)) {
			m.deleted = append(m.deleted, name)
		}
	})
}

func (m *Model) set(node string, device *discoveryv1.Device) {
	m.change(device.GetInstance(), func(s *state) {
		s.shared = device.GetShared()
		s.seen[node] = device.GetProperties()
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
		if s.sees(node) {
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
		s = &state{seen: map[string]map[string]string{}, holders: map[string]string{}, stored: map[string]*akriv0.Instance{}}
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

func (s *state) sees(node string) bool {
	_, sees := s.seen[node]
	return sees
}

// expected is the number of Instances.
func (s *state) expected() int {
	if s.shared {
		return min(1, len(s.seen))
	}
	return len(s.seen)
}

// difference returns how the stored Instances differ from what is expected. Empty: they do not.
func (s *state) difference() string {
	if len(s.stored) != s.expected() {
		return fmt.Sprintf("%d nodes see it, %d Instances exist", len(s.seen), len(s.stored))
	}
	nodes := map[string]bool{}
	for _, instance := range s.stored {
		if difference := s.differenceOf(instance); difference != "" {
			return difference
		}
		for _, node := range instance.Spec.Nodes {
			nodes[node] = true
		}
	}
	if len(nodes) != len(s.seen) {
		return fmt.Sprintf("has %d nodes, expected %d", len(nodes), len(s.seen))
	}
	return ""
}

func (s *state) differenceOf(instance *akriv0.Instance) string {
	spec := instance.Spec
	for _, node := range spec.Nodes {
		if !s.sees(node) {
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

// Collisions returns the number of devices whose short name another device has.
func (m *Model) Collisions() (count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.instances {
		count += max(0, s.expected()-1)
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
