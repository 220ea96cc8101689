package node

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

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
			return client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: s.node, Parts: true})
		},
		func(response *instancev1.WatchInstancesResponse) {
			snapshot := response.GetSnapshot()
			if snapshot == nil {
				s.apply(response)
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
func (s *Store) apply(response *instancev1.WatchInstancesResponse) {
	switch event := response.GetEvent().(type) {
	case *instancev1.WatchInstancesResponse_Updated:
		s.Update(event.Updated)
	case *instancev1.WatchInstancesResponse_Removed:
		name := types.NamespacedName{Namespace: event.Removed.GetNamespace(), Name: event.Removed.GetName()}
		s.Remove(name, event.Removed.GetRevision())
	}
}
