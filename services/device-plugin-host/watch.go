package devicepluginhost

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/node"
)

// longestWait is the longest pause before a source is asked again.
const longestWait = 2 * time.Second

// synced tells whether each source has been heard once.
type synced struct{ inventory, instances atomic.Bool }

func (s *synced) check(context.Context) error {
	var missing []error
	if !s.inventory.Load() {
		missing = append(missing, errors.New("discovery-operator has not been heard yet"))
	}
	if !s.instances.Load() {
		missing = append(missing, errors.New("instance-writer has not been heard yet"))
	}
	return errors.Join(missing...)
}

// watchDevices keeps the store's inventory that of discovery-operator.
func (s *Service) watchDevices(ctx context.Context, client discoveryv1.DeviceInventoryServiceClient) error {
	rpc.Keep(ctx, s.env.Log, longestWait, func(ctx context.Context, healthy func()) error {
		stream, err := client.WatchDevices(ctx, &discoveryv1.WatchDevicesRequest{})
		if err != nil {
			return err
		}
		for {
			message, err := stream.Recv()
			if err != nil {
				return err
			}
			healthy()
			s.store.SetInventory(message.GetConfigurations())
			s.synced.inventory.Store(true)
		}
	})
	return nil
}

// watchInstances keeps the store's Instances those of instance-writer.
func (s *Service) watchInstances(ctx context.Context, client instancev1.InstanceServiceClient) error {
	rpc.Keep(ctx, s.env.Log, longestWait, func(ctx context.Context, healthy func()) error {
		stream, err := client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: s.config.NodeName})
		if err != nil {
			return err
		}
		for {
			message, err := stream.Recv()
			if err != nil {
				return err
			}
			healthy()
			s.apply(message)
		}
	})
	return nil
}

func (s *Service) apply(message *instancev1.WatchInstancesResponse) {
	switch event := message.GetEvent().(type) {
	case *instancev1.WatchInstancesResponse_Snapshot:
		s.store.SetInstances(event.Snapshot.GetInstances(), event.Snapshot.GetRevision())
		s.synced.instances.Store(true)
	case *instancev1.WatchInstancesResponse_Updated:
		s.store.Update(event.Updated)
	case *instancev1.WatchInstancesResponse_Removed:
		key := node.Key{Namespace: event.Removed.GetNamespace(), Name: event.Removed.GetName()}
		s.store.Remove(key, event.Removed.GetRevision())
	}
}
