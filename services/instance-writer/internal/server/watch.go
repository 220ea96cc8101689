package server

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/slots"
)

type watchStream = grpc.ServerStreamingServer[instancev1.WatchInstancesResponse]

// WatchInstances sends a snapshot, then each change.
func (s *Server) WatchInstances(request *instancev1.WatchInstancesRequest, stream watchStream) error {
	node := request.GetNode()
	if node == "" {
		return toStatus(invalidError("a node must be given"))
	}
	watcher := s.Feed.Watch(node)
	defer watcher.Close()
	known := map[types.NamespacedName]string{} // the version that was sent
	if err := stream.Send(s.snapshot(node, known)); err != nil {
		return fmt.Errorf("send snapshot: %w", err)
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-s.Stopping:
			return errStopping
		case <-watcher.Ready:
		}
		changed, ok := watcher.Take()
		if !ok {
			return status.Error(codes.ResourceExhausted, "the receiver is too slow; watch again")
		}
		for key := range changed {
			if err := s.sendChange(stream, node, key, known); err != nil {
				return err
			}
		}
	}
}

func (s *Server) snapshot(node string, known map[types.NamespacedName]string) *instancev1.WatchInstancesResponse {
	snapshot := &instancev1.InstanceSnapshot{Revision: number(s.Cluster.Revision())} // before what it tells of
	for _, instance := range s.Cluster.InstancesOn(node) {
		known[cluster.Key(instance)] = instance.ResourceVersion
		snapshot.Instances = append(snapshot.Instances, toProto(instance))
	}
	return &instancev1.WatchInstancesResponse{Event: &instancev1.WatchInstancesResponse_Snapshot{Snapshot: snapshot}}
}

func (s *Server) sendChange(stream watchStream, node string, key types.NamespacedName, known map[types.NamespacedName]string) error {
	revision := number(s.Cluster.Revision()) // before what it tells of
	instance := s.Cluster.Watched(key)
	listed := instance != nil && slices.Contains(instance.Spec.Nodes, node)
	response := &instancev1.WatchInstancesResponse{}
	switch {
	case listed && known[key] != instance.ResourceVersion:
		known[key] = instance.ResourceVersion
		response.Event = &instancev1.WatchInstancesResponse_Updated{Updated: toProto(instance)}
	case !listed: // even if this stream never sent it: the receiver may know it from another replica
		delete(known, key)
		removed := &instancev1.InstanceKey{Namespace: key.Namespace, Name: key.Name, Revision: revision}
		response.Event = &instancev1.WatchInstancesResponse_Removed{Removed: removed}
	default:
		return nil
	}
	if err := stream.Send(response); err != nil {
		return fmt.Errorf("send change: %w", err)
	}
	return nil
}

func toProto(instance *akriv0.Instance) *instancev1.Instance {
	listed := slots.List(instance)
	message := &instancev1.Instance{
		Revision:  number(instance.ResourceVersion),
		Namespace: instance.Namespace, Name: instance.Name, Configuration: instance.Spec.ConfigurationName,
		Capacity: uint32(max(instance.Spec.Capacity, 0)), // not negative
		Shared:   instance.Spec.Shared, Properties: instance.Spec.BrokerProperties,
		Slots: make([]*instancev1.Slot, 0, len(listed)),
	}
	for _, slot := range listed {
		message.Slots = append(message.Slots, slotToProto(slot))
	}
	return message
}

// number is 0 when the API server's versions are no numbers, which those of etcd are: the receiver
// then goes by the order of arrival.
func number(version string) uint64 {
	revision, _ := strconv.ParseUint(version, 10, 64)
	return revision
}

func slotToProto(slot slots.Slot) *instancev1.Slot {
	message := &instancev1.Slot{Index: uint32(slot.Index)} // not negative
	switch {
	case slot.Malformed != "":
		message.State = &instancev1.Slot_Malformed{Malformed: slot.Malformed}
	case slot.Free():
		message.State = &instancev1.Slot_Free{Free: &instancev1.Free{}}
	default:
		holder := &instancev1.Holder{Node: slot.Holder.Node}
		if slot.Holder.Configuration {
			holder.VirtualId = &slot.Holder.VirtualID
		}
		message.State = &instancev1.Slot_Holder{Holder: holder}
	}
	return message
}
