// Package node is what this node knows: the devices that it sees (from discovery-operator) and the Instances that list
// it (from instance-writer). While a source is away, what it said last stays true.
package node

import (
	"maps"
	"sync"

	"google.golang.org/protobuf/proto"

	"akri.sh/libs/broadcast"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Key names an object of the cluster.
type Key struct{ Namespace, Name string }

// Store merges both sources into a View. What it is given must not be changed afterwards.
type Store struct {
	node string

	mu        sync.Mutex
	instances map[Key]*instancev1.Instance
	inventory map[Key]map[string]*discoveryv1.Device // Configuration → Instance → device

	view broadcast.Value[*View]
}

// NewStore returns an empty store for the node.
func NewStore(node string) *Store {
	s := &Store{node: node, instances: map[Key]*instancev1.Instance{}, inventory: map[Key]map[string]*discoveryv1.Device{}}
	s.publish()
	return s
}

// Get returns the current view, and a channel that closes when there is a newer one.
func (s *Store) Get() (*View, <-chan struct{}) { return s.view.Get() }

// SetInventory replaces what is known of the devices. A list that is not complete removes none.
func (s *Store) SetInventory(configurations []*discoveryv1.ConfigurationDevices) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inventory := make(map[Key]map[string]*discoveryv1.Device, len(configurations))
	for _, configuration := range configurations {
		key := Key{configuration.GetNamespace(), configuration.GetName()}
		devices := map[string]*discoveryv1.Device{}
		if !configuration.GetComplete() {
			maps.Copy(devices, s.inventory[key])
		}
		for _, device := range configuration.GetDevices() {
			devices[device.GetInstance()] = device
		}
		inventory[key] = devices
	}
	s.inventory = inventory
	s.publish()
}

// SetInstances replaces what is known of the Instances by a list as of the revision, save what is newer: the replica
// that sent the list may lag behind the one that was heard before.
func (s *Store) SetInstances(instances []*instancev1.Instance, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := make(map[Key]*instancev1.Instance, len(instances))
	for _, instance := range instances {
		key := keyOf(instance)
		fresh[key] = newer(s.instances[key], instance)
	}
	for key, known := range s.instances {
		if fresh[key] == nil && later(known, revision) {
			fresh[key] = known
		}
	}
	s.instances = fresh
	s.publish()
}

// Update adds or replaces one Instance.
func (s *Store) Update(instance *instancev1.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(instance)
}

// Refresh replaces Instances that are known. The answer to a call may tell of one that does not list this node any
// more: only the watch decides that.
func (s *Store) Refresh(instances []*instancev1.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, instance := range instances {
		if s.instances[keyOf(instance)] != nil {
			s.put(instance)
		}
	}
}

// Remove forgets one Instance that was gone at the revision.
func (s *Store) Remove(key Key, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.instances[key]; known != nil && !later(known, revision) {
		delete(s.instances, key)
		s.publish()
	}
}

func (s *Store) put(instance *instancev1.Instance) {
	key := keyOf(instance)
	before := s.instances[key]
	if s.instances[key] = newer(before, instance); s.instances[key] != before {
		s.publish()
	}
}

func (s *Store) publish() { s.view.Set(newView(s.node, s.instances, s.inventory)) }

func keyOf(instance *instancev1.Instance) Key {
	return Key{instance.GetNamespace(), instance.GetName()}
}

// newer returns what is known unless the other is newer: the watch and the answers to calls overtake each other.
func newer(known, other *instancev1.Instance) *instancev1.Instance {
	if later(known, other.GetRevision()) || known != nil && proto.Equal(known, other) {
		return known
	}
	return other
}

// later tells whether the Instance is known by a later revision than that, where 0 is the newest.
func later(known *instancev1.Instance, revision uint64) bool {
	return revision != 0 && known.GetRevision() > revision
}
