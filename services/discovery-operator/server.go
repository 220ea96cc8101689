package operator

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/broadcast"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// inventoryServer serves the inventory to the other services of the node.
type inventoryServer struct {
	discoveryv1.UnimplementedDeviceInventoryServiceServer
	inventory *broadcast.Value[inventory.Snapshot]
	// stopping is closed when the process stops; an open watch would otherwise delay it.
	stopping <-chan struct{}
}

// WatchDevices sends the inventory once it is known and after each change.
func (s *inventoryServer) WatchDevices(
	_ *discoveryv1.WatchDevicesRequest, stream grpc.ServerStreamingServer[discoveryv1.WatchDevicesResponse],
) error {
	for {
		snapshot, changed := s.inventory.Get()
		if snapshot.Ready {
			response := &discoveryv1.WatchDevicesResponse{}
			for _, entry := range snapshot.Entries {
				report := entry.Report
				response.Configurations = append(response.Configurations, &discoveryv1.ConfigurationDevices{
					Namespace: report.GetNamespace(), Name: report.GetConfiguration(),
					Complete: report.GetComplete(), Devices: report.GetDevices(),
				})
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopping:
			return status.Error(codes.Unavailable, "the discovery-operator is stopping")
		}
	}
}
