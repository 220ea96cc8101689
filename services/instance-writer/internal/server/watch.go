package server

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/slots"
)

// InstanceChanged notifies the streams of the nodes that the change concerns. before or after is
// nil if the Instance is new or deleted.
func (s *Server) InstanceChanged(before, after *akriv0.Instance) {
	if before != nil && after != nil && before.ResourceVersion == after.ResourceVersion {
		return // the watch has listed the Instance again
	}
	s.subscriptions.notify(cluster.Key(cmp.Or(after, before)), concerned(before, after)...)
}

// concerned returns the nodes that must know of the change: those that the Instance lists or
// listed. If only its nodes have changed, the other nodes have what they need: without this rule
// each node that joins would cause a message to each node that shares a device with it.
func concerned(before, after *akriv0.Instance) []string {
	switch {
	case before == nil:
		return after.Spec.Nodes
	case after == nil:
		return before.Spec.Nodes
	}
	listed, lists := sets.New(before.Spec.Nodes...), sets.New(after.Spec.Nodes...)
	old, current := toProto(before), toProto(after)
	old.Revision, current.Revision = 0, 0
	if proto.Equal(old, current) {
		return listed.SymmetricDifference(lists).UnsortedList()
	}
	return listed.Union(lists).UnsortedList()
}

// ResourcesChanged makes the streams of the node, or of all nodes if it is empty, send how Pods get
// devices if that has changed.
func (s *Server) ResourcesChanged(node string) { s.subscriptions.wake(node) }

// instanceStream is a WatchInstances stream. It does not store what it has sent: a change during
// the snapshot can be sent twice, and receivers ignore what they have.
type instanceStream struct {
	*Server
	grpc.ServerStreamingServer[instancev1.WatchInstancesResponse]
	node string
	// resources is what was sent last, or nil.
	resources *instancev1.Resources
}

// WatchInstances sends how Pods get devices if the cluster decides it, a snapshot, then each
// change.
func (s *Server) WatchInstances(
	request *instancev1.WatchInstancesRequest, stream grpc.ServerStreamingServer[instancev1.WatchInstancesResponse],
) error {
	if request.GetNode() == "" {
		return toStatus(invalidRequestError("node must not be empty"))
	}
	lost := s.ConnectionLost()
	select {
	case <-lost:
		return errConnectionLost
	default:
	}
	subscription := s.subscriptions.subscribe(request.GetNode())
	defer subscription.close()
	instances := &instanceStream{Server: s, ServerStreamingServer: stream, node: request.GetNode()}
	if err := instances.sendResources(); err != nil {
		return err
	}
	if err := instances.sendSnapshot(); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-s.Stopping:
			return errStopping
		case <-lost:
			return errConnectionLost
		case <-subscription.changed:
		}
		if err := instances.sendResources(); err != nil {
			return err
		}
		changed, ok := subscription.take()
		if !ok {
			return status.Error(codes.ResourceExhausted, "too many pending changes; reopen the stream and receive faster")
		}
		for key := range changed {
			if err := instances.sendChange(key); err != nil {
				return err
			}
		}
	}
}

// sendResources sends how Pods on the node get devices if that has changed. That of a Node which is
// deleted while its stream is open stays.
func (s *instanceStream) sendResources() error {
	if s.Cluster.Record == nil {
		return nil
	}
	decided, exists := s.Cluster.ResourcesOn(s.node)
	current := resourcesToProto(decided)
	if s.resources != nil && (!exists || *s.resources == current) {
		return nil
	}
	s.resources = &current
	event := &instancev1.WatchInstancesResponse_Resources{Resources: current}
	if err := s.Send(&instancev1.WatchInstancesResponse{Event: event}); err != nil {
		return fmt.Errorf("send how Pods get devices: %w", err)
	}
	return nil
}

func resourcesToProto(resources string) instancev1.Resources {
	switch resources {
	case akriv0.ResourcesDevicePlugin:
		return instancev1.Resources_RESOURCES_DEVICE_PLUGIN
	case akriv0.ResourcesDRA:
		return instancev1.Resources_RESOURCES_DRA
	default:
		return instancev1.Resources_RESOURCES_UNSPECIFIED
	}
}

func (s *instanceStream) sendSnapshot() error {
	// The revision is read before the Instances, so that it is not newer than they are.
	part, size := &instancev1.InstanceSnapshot{Revision: revision(s.Cluster.Revision())}, 0
	for _, instance := range s.Cluster.InstancesOn(s.node) {
		message := toProtoAt(instance, part.GetRevision())
		bytes := proto.Size(message)
		if size > 0 && size+bytes > maxPartBytes {
			part.More = true
			if err := s.sendPart(part); err != nil {
				return err
			}
			part, size = &instancev1.InstanceSnapshot{Revision: part.GetRevision()}, 0
		}
		part.Instances = append(part.Instances, message)
		size += bytes
	}
	return s.sendPart(part)
}

func (s *instanceStream) sendPart(part *instancev1.InstanceSnapshot) error {
	event := &instancev1.WatchInstancesResponse_Snapshot{Snapshot: part}
	if err := s.Send(&instancev1.WatchInstancesResponse{Event: event}); err != nil {
		return fmt.Errorf("send snapshot: %w", err)
	}
	return nil
}

func (s *instanceStream) sendChange(key types.NamespacedName) error {
	current := revision(s.Cluster.Revision()) // not newer than the Instance
	response := &instancev1.WatchInstancesResponse{}
	if instance := s.Cluster.Watched(key); instance != nil && slices.Contains(instance.Spec.Nodes, s.node) {
		response.Event = &instancev1.WatchInstancesResponse_Updated{Updated: toProtoAt(instance, current)}
	} else {
		// Sent even if this stream has not sent the Instance: the receiver may have it from another
		// replica.
		removed := &instancev1.InstanceKey{Namespace: key.Namespace, Name: key.Name, Revision: current}
		response.Event = &instancev1.WatchInstancesResponse_Removed{Removed: removed}
	}
	if err := s.Send(response); err != nil {
		return fmt.Errorf("send change: %w", err)
	}
	return nil
}

// toProtoAt returns the Instance as the state at the revision, which the watch has reached, unless
// the Instance is newer. After a restore of etcd, Instances have earlier resourceVersions than what
// nodes have received, and only the revision of the watch is later.
func toProtoAt(instance *akriv0.Instance, reached uint64) *instancev1.Instance {
	message := toProto(instance)
	message.Revision = max(message.Revision, reached)
	return message
}

func toProto(instance *akriv0.Instance) *instancev1.Instance {
	listed := slots.List(instance)
	message := &instancev1.Instance{
		Revision:  revision(instance.ResourceVersion),
		Namespace: instance.Namespace, Name: instance.Name, Configuration: instance.Spec.ConfigurationName,
		Capacity: uint32(max(instance.Spec.Capacity, 0)),
		Shared:   instance.Spec.Shared,
		DeviceId: instance.Annotations[akriv0.DeviceIDAnnotation],
		Slots:    make([]*instancev1.Slot, 0, len(listed)),
	}
	for _, slot := range listed {
		message.Slots = append(message.Slots, slotToProto(slot))
	}
	return message
}

// revision returns the resourceVersion as a number. It returns 0, which means unknown, if the API
// server's resourceVersions are not numbers; those of etcd are.
func revision(resourceVersion string) uint64 {
	number, _ := strconv.ParseUint(resourceVersion, 10, 64)
	return number
}

func slotToProto(slot slots.Slot) *instancev1.Slot {
	message := &instancev1.Slot{Index: uint32(slot.Index)}
	switch {
	case slot.Malformed != "":
		message.State = &instancev1.Slot_Malformed{Malformed: slot.Malformed}
	case slot.Free():
		message.State = &instancev1.Slot_Free{Free: &instancev1.Free{}}
	case slot.Holder.Claim != "":
		message.State = &instancev1.Slot_Claim{Claim: &instancev1.ClaimHolder{Node: slot.Holder.Node, Uid: slot.Holder.Claim}}
	default:
		holder := &instancev1.Holder{Node: slot.Holder.Node}
		if slot.Holder.Configuration {
			holder.VirtualId = &slot.Holder.VirtualID
		}
		message.State = &instancev1.Slot_Holder{Holder: holder}
	}
	return message
}

// maxPending is more than the number of Instances that a node can see. A receiver with more pending
// changes has stopped receiving.
const maxPending = 50_000

// subscriptions passes changes of Instances to the streams of the nodes that they concern.
type subscriptions struct {
	mu     sync.Mutex
	byNode map[string]map[*subscription]struct{}
}

// subscription collects the names of the changed Instances of one node. A slow receiver may miss
// intermediate states, but not the latest state.
type subscription struct {
	// changed is set if take returns something, the subscription has overflowed, or how Pods get
	// devices may have changed.
	changed broadcast.Signal

	all      *subscriptions
	node     string
	pending  map[types.NamespacedName]struct{}
	overflow bool
}

func newSubscriptions() *subscriptions {
	return &subscriptions{byNode: map[string]map[*subscription]struct{}{}}
}

// subscribe returns a subscription to later changes. The caller closes it.
func (s *subscriptions) subscribe(node string) *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &subscription{changed: broadcast.NewSignal(), all: s, node: node, pending: map[types.NamespacedName]struct{}{}}
	if s.byNode[node] == nil {
		s.byNode[node] = map[*subscription]struct{}{}
	}
	s.byNode[node][added] = struct{}{}
	return added
}

// notify adds a changed Instance to the subscriptions of the nodes.
func (s *subscriptions) notify(instance types.NamespacedName, nodes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range nodes {
		for subscription := range s.byNode[node] {
			subscription.add(instance)
		}
	}
}

// wake sets changed of the subscriptions of the node, or of all nodes if it is empty.
func (s *subscriptions) wake(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, subscribed := range s.byNode {
		if node != "" && name != node {
			continue
		}
		for subscription := range subscribed {
			subscription.changed.Notify()
		}
	}
}

func (s *subscription) add(instance types.NamespacedName) {
	if len(s.pending) >= maxPending {
		s.overflow = true
	} else {
		s.pending[instance] = struct{}{}
	}
	s.changed.Notify()
}

// take returns the Instances that have changed since the last call. It returns false after an
// overflow.
func (s *subscription) take() (changed map[types.NamespacedName]struct{}, ok bool) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	changed = s.pending
	s.pending = map[types.NamespacedName]struct{}{}
	return changed, !s.overflow
}

func (s *subscription) close() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	delete(s.all.byNode[s.node], s)
	if len(s.all.byNode[s.node]) == 0 {
		delete(s.all.byNode, s.node)
	}
}
