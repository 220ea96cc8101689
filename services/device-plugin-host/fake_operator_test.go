package devicepluginhost_test

import (
	"google.golang.org/grpc"

	"akri.sh/libs/broadcast"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

// fakeOperator is a discovery-operator whose devices are set by the test.
type fakeOperator struct {
	discoveryv1.UnimplementedDeviceInventoryServiceServer
	inventory broadcast.Value[*discoveryv1.WatchDevicesResponse]
}

func (o *fakeOperator) set(configurations ...*discoveryv1.ConfigurationDevices) {
	o.inventory.Set(&discoveryv1.WatchDevicesResponse{Configurations: configurations})
}

func (o *fakeOperator) WatchDevices(
	_ *discoveryv1.WatchDevicesRequest, stream grpc.ServerStreamingServer[discoveryv1.WatchDevicesResponse],
) error {
	for {
		inventory, changed := o.inventory.Get()
		if inventory != nil {
			if err := stream.Send(inventory); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}
