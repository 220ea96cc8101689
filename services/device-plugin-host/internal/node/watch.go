package node

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// maxRetryDelay is the longest delay before a watch is opened again.
const maxRetryDelay = 2 * time.Second

// WatchDevices copies the devices of discovery-operator into the store until ctx ends, and then
// returns nil.
func (s *Store) WatchDevices(ctx context.Context, client discoveryv1.DeviceInventoryServiceClient, log *zap.Logger) error {
	rpc.Keep(ctx, log, maxRetryDelay, func(ctx context.Context, healthy func()) error {
		stream, err := client.WatchDevices(ctx, &discoveryv1.WatchDevicesRequest{})
		if err != nil {
			return err
		}
		for {
			response, err := stream.Recv()
			if err != nil {
				return err
			}
			healthy()
			s.SetDevices(response.GetConfigurations())
		}
	})
	return nil
}

// WatchInstances copies the Instances of instance-writer that list this node into the store until
// ctx ends, and then returns nil.
func (s *Store) WatchInstances(ctx context.Context, client instancev1.InstanceServiceClient, log *zap.Logger) error {
	rpc.Keep(ctx, log, maxRetryDelay, func(ctx context.Context, healthy func()) error {
		stream, err := client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: s.node})
		if err != nil {
			return err
		}
		for {
			response, err := stream.Recv()
			if err != nil {
				return err
			}
			healthy()
			s.apply(response)
		}
	})
	return nil
}

func (s *Store) apply(response *instancev1.WatchInstancesResponse) {
	switch event := response.GetEvent().(type) {
	case *instancev1.WatchInstancesResponse_Snapshot:
		s.SetInstances(event.Snapshot.GetInstances(), event.Snapshot.GetRevision())
	case *instancev1.WatchInstancesResponse_Updated:
		s.Update(event.Updated)
	case *instancev1.WatchInstancesResponse_Removed:
		name := types.NamespacedName{Namespace: event.Removed.GetNamespace(), Name: event.Removed.GetName()}
		s.Remove(name, event.Removed.GetRevision())
	}
}
