// Package node holds the state of this node: the devices that it sees (from discovery-operator) and
// the Instances that list it (from instance-writer). While a source is unreachable, its last state
// stays in effect.
package node

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Store merges both sources into a Snapshot. Callers must not change messages that they pass to it.
type Store struct {
	node string

	mu                                 sync.Mutex
	instances                          map[types.NamespacedName]*instancev1.Instance
	devices                            map[types.NamespacedName]devices // by Configuration
	resources                          instancev1.Resources
	devicesReceived, instancesReceived bool

	snapshot broadcast.Value[*Snapshot]
}

// NewStore returns an empty store for the node.
func NewStore(node string) *Store {
	s := &Store{
		node:      node,
		instances: map[types.NamespacedName]*instancev1.Instance{},
		devices:   map[types.NamespacedName]devices{},
	}
	s.publish()
	return s
}

// Get returns the current snapshot and a channel that is closed when there is a newer one.
func (s *Store) Get() (*Snapshot, <-chan struct{}) { return s.snapshot.Get() }

// CheckReady is a readiness check: it fails until both sources have sent their state once.
func (s *Store) CheckReady(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if !s.devicesReceived {
		errs = append(errs, errors.New("no device list received from discovery-operator yet"))
	}
	if !s.instancesReceived {
		errs = append(errs, errors.New("no Instances received from instance-writer yet"))
	}
	return errors.Join(errs...)
}

// SetDevices replaces the devices. An incomplete list adds and changes devices and removes none.
func (s *Store) SetDevices(configurations []*discoveryv1.ConfigurationDevices) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[types.NamespacedName]devices, len(configurations))
	for _, configuration := range configurations {
		name := types.NamespacedName{Namespace: configuration.GetNamespace(), Name: configuration.GetName()}
		seen := devices{}
		if !configuration.GetComplete() {
			maps.Copy(seen, s.devices[name])
		}
		for _, device := range configuration.GetDevices() {
			seen.put(device)
		}
		all[name] = seen
	}
	s.devices, s.devicesReceived = all, true
	s.publish()
}

// SetInstances replaces the Instances by a list at the revision. Instances that are newer than the
// list stay, because the replica that sent the list may lag behind the replica that sent them.
func (s *Store) SetInstances(instances []*instancev1.Instance, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[types.NamespacedName]*instancev1.Instance, len(instances))
	for _, instance := range instances {
		name := nameOf(instance)
		all[name] = newer(s.instances[name], instance)
	}
	for name, current := range s.instances {
		if all[name] == nil && isNewer(current, revision) {
			all[name] = current
		}
	}
	s.instances, s.instancesReceived = all, true
	s.publish()
}

// Update adds or replaces one Instance.
func (s *Store) Update(instance *instancev1.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(instance)
}

// Refresh replaces Instances that are in the store, and adds none: the response to a call may
// contain an Instance that does not list this node any more. Only the watch adds Instances.
func (s *Store) Refresh(instances []*instancev1.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, instance := range instances {
		if s.instances[nameOf(instance)] != nil {
			s.put(instance)
		}
	}
}

// Remove removes an Instance that did not exist, or did not list this node, at the revision.
func (s *Store) Remove(name types.NamespacedName, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current := s.instances[name]; current != nil && !isNewer(current, revision) {
		delete(s.instances, name)
		s.publish()
	}
}

// SetResources sets how Pods on this node get devices, and returns whether that is a change.
// RESOURCES_UNSPECIFIED is none: a decision that is missing for a while is no other decision.
func (s *Store) SetResources(resources instancev1.Resources) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resources == instancev1.Resources_RESOURCES_UNSPECIFIED || resources == s.resources {
		return false
	}
	s.resources = resources
	s.publish()
	return true
}

func (s *Store) put(instance *instancev1.Instance) {
	name := nameOf(instance)
	previous := s.instances[name]
	s.instances[name] = newer(previous, instance)
	if !equal(previous, s.instances[name]) {
		s.publish()
	}
}

// equal reports whether the Instances differ in nothing but their revision.
func equal(a, b *instancev1.Instance) bool {
	if a == nil || b == nil {
		return a == b
	}
	other := proto.CloneOf(b)
	other.Revision = a.GetRevision()
	return proto.Equal(a, other)
}

func (s *Store) publish() {
	snapshot := newSnapshot(s.node, s.instances, s.devices)
	snapshot.Resources = s.resources
	s.snapshot.Set(snapshot)
}

func nameOf(instance *instancev1.Instance) types.NamespacedName {
	return types.NamespacedName{Namespace: instance.GetNamespace(), Name: instance.GetName()}
}

// newer returns the current Instance if it is newer than the received one, and otherwise the
// received one. The watch and the responses to calls can overtake each other.
func newer(current, received *instancev1.Instance) *instancev1.Instance {
	if isNewer(current, received.GetRevision()) {
		return current
	}
	return received
}

// isNewer reports whether the Instance is newer than the revision. Revision 0 is newer than any
// other.
func isNewer(instance *instancev1.Instance, revision uint64) bool {
	return revision != 0 && instance.GetRevision() > revision
}

// maxRetryDelay is the longest delay before a watch is opened again.
const maxRetryDelay = 2 * time.Second

// WatchDevices copies the devices of discovery-operator into the store until ctx ends, and then
// returns nil.
func (s *Store) WatchDevices(
	ctx context.Context, client discoveryv1.DeviceInventoryServiceClient, log *zap.Logger,
) error {
	return watch(ctx, log,
		func(ctx context.Context) (grpc.ServerStreamingClient[discoveryv1.WatchDevicesResponse], error) {
			return client.WatchDevices(ctx, &discoveryv1.WatchDevicesRequest{})
		},
		func(response *discoveryv1.WatchDevicesResponse) { s.SetDevices(response.GetConfigurations()) })
}

// WatchInstances copies the Instances of instance-writer that list this node into the store until
// ctx ends, and then returns nil.
func (s *Store) WatchInstances(ctx context.Context, client instancev1.InstanceServiceClient, log *zap.Logger) error {
	var parts []*instancev1.Instance // of a snapshot
	return watch(ctx, log,
		func(ctx context.Context) (grpc.ServerStreamingClient[instancev1.WatchInstancesResponse], error) {
			parts = nil
			return client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: s.node})
		},
		func(response *instancev1.WatchInstancesResponse) {
			snapshot := response.GetSnapshot()
			if snapshot == nil {
				s.apply(response, log)
				return
			}
			parts = append(parts, snapshot.GetInstances()...)
			if !snapshot.GetMore() {
				s.SetInstances(parts, snapshot.GetRevision())
				parts = nil
			}
		})
}

// watch calls apply with each response of a stream that it keeps open until ctx ends.
func watch[T any](
	ctx context.Context, log *zap.Logger,
	open func(context.Context) (grpc.ServerStreamingClient[T], error), apply func(*T),
) error {
	rpc.Keep(ctx, log, maxRetryDelay, func(ctx context.Context, healthy func()) error {
		stream, err := open(ctx)
		for err == nil {
			var response *T
			if response, err = stream.Recv(); err == nil {
				healthy()
				apply(response)
			}
		}
		return err
	})
	return nil
}

// apply applies a change.
func (s *Store) apply(response *instancev1.WatchInstancesResponse, log *zap.Logger) {
	switch event := response.GetEvent().(type) {
	case *instancev1.WatchInstancesResponse_Updated:
		s.Update(event.Updated)
	case *instancev1.WatchInstancesResponse_Removed:
		name := types.NamespacedName{Namespace: event.Removed.GetNamespace(), Name: event.Removed.GetName()}
		s.Remove(name, event.Removed.GetRevision())
	case *instancev1.WatchInstancesResponse_Resources:
		if s.SetResources(event.Resources) {
			log.Info("instance-writer stated how Pods on this node get devices", zap.Stringer("resources", event.Resources))
		}
	}
}
