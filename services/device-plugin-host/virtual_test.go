package devicepluginhost_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// allocateWithoutResponse allocates a virtual device and cancels the call while the reservation
// hangs. It returns the reservation, which may still be carried out.
func (f *fixture) allocateWithoutResponse(id string) (late []func()) {
	f.t.Helper()
	f.writer.HangReservations()
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	client := f.kubelet.client(configuration)
	result := make(chan error, 1)
	go func() {
		_, err := client.Allocate(ctx, &pluginapi.AllocateRequest{
			ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids(id)}},
		})
		result <- err
	}()
	f.awaitHangingReservation()
	cancel()
	require.Error(f.t, <-result)
	return f.writer.AnswerReservations()
}

func TestPendingVirtualDeviceRequestsSameSlot(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 2)
	f.writer.Put(second, "akri-onvif", 1)
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	late := f.allocateWithoutResponse("0")
	f.writer.Put(second, "akri-onvif", 5) // this Instance has most free slots now
	f.awaitDevices("akri.sh/"+second, all(healthy, second+"-0", second+"-1", second+"-2", second+"-3", second+"-4"))

	_, err := f.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	for _, reserve := range late {
		reserve()
	}
	require.Equal(t, []string{"C:0:node-a", ""}, f.writer.Usage(first))
	require.Equal(t, make([]string, 5), f.writer.Usage(second))
}

func TestPendingSlotTakenByAnotherNode(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 2)
	f.writer.Put(second, "akri-onvif", 1)
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	f.allocateWithoutResponse("0")
	f.writer.Put(first, "akri-onvif", 2, "node-b", "node-b")
	f.awaitDevices("akri.sh/"+first, all(unhealthy, first+"-0", first+"-1"))

	_, err := f.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	require.Equal(t, []string{"C:0:node-a"}, f.writer.Usage(second))
}

func TestPendingSlotIsFreeForOtherDevices(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.writer.Put(second, "akri-onvif", 1)
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	f.writer.Remove(second)
	f.awaitDevices(configuration, map[string]string{"0": healthy, "1": unhealthy})
	f.allocateWithoutResponse("0")
	_, err := f.kubelet.allocate(configuration, ids("1"))
	require.NoError(t, err)
	require.Equal(t, []string{"C:1:node-a"}, f.writer.Usage(first))
}

func TestDuplicateVirtualSlotIsReleased(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 2)
	f.writer.Put(second, "akri-onvif", 2)
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	_, err := f.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	f.pods.set(configuration, "0")
	f.writer.Put(second, "akri-onvif", 2, "", "C:0:node-a") // a late reservation of an earlier process
	f.awaitUsage(second, "", "")
	require.Equal(t, []string{"C:0:node-a", ""}, f.writer.Usage(first))
}

func TestVirtualDeviceWithTwoSlotsUsesFirst(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 2, "", "C:0:node-a")
	f.writer.Put(second, "akri-onvif", 2, "C:0:node-a", "")
	f.awaitDevices(configuration, all(healthy, "0", "1", "2"))
	_, err := f.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	f.awaitUsage(second, "", "")
	require.Equal(t, []string{"", "C:0:node-a"}, f.writer.Usage(first))
}
