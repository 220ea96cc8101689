package operator

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

// deviceInventory tells the node which devices it sees.
type deviceInventory struct {
	discoveryv1.UnimplementedDeviceInventoryServiceServer
	views *views
	// stopping is closed when the process is to end: a watch would otherwise hold it.
	stopping <-chan struct{}
}

// WatchDevices sends the inventory as soon as there is one, and after each change.
func (d *deviceInventory) WatchDevices(
	_ *discoveryv1.WatchDevicesRequest, stream grpc.ServerStreamingServer[discoveryv1.WatchDevicesResponse],
) error {
	for {
		all, ready, changed := d.views.snapshot()
		if ready {
			if err := stream.Send(inventoryOf(all)); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-d.stopping:
			return status.Error(codes.Unavailable, "the discovery-operator is stopping")
		}
	}
}

func inventoryOf(all []view) *discoveryv1.WatchDevicesResponse {
	response := &discoveryv1.WatchDevicesResponse{}
	for _, one := range all {
		response.Configurations = append(response.Configurations, one.Inventory)
	}
	return response
}

// answers checks a server of this process the way that its clients see it.
func answers(conn *grpc.ClientConn) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
		return err
	}
}
