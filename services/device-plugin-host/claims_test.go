package devicepluginhost_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// askInVain asks for a virtual device that the writer does not answer for, until the caller gives up.
func askInVain(t *testing.T, m *mesh, id string) (late []func()) {
	t.Helper()
	m.writer.loseReservations()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := m.kubelet.client(configuration).Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids(id)}},
	})
	require.Error(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		late = append(late, m.writer.lostReservations()...)
		require.NotEmpty(c, late)
	}, soon, 2*time.Millisecond)
	return late
}

func TestAVirtualDeviceOfUnknownOutcomeIsAskedForWithTheSameSlot(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 2)
	m.writer.put(second, "akri-onvif", 1)
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	late := askInVain(t, m, "0")
	m.writer.put(second, "akri-onvif", 5) // the one with most free slots now
	m.awaitDevices("akri.sh/"+second, all(healthy, second+"-0", second+"-1", second+"-2", second+"-3", second+"-4"))

	_, err := m.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	for _, carryOut := range late {
		carryOut()
	}
	require.Equal(t, []string{"C:0:node-a", ""}, m.writer.usage(first))
	require.Equal(t, make([]string, 5), m.writer.usage(second))
}

func TestASlotOfUnknownOutcomeThatAnotherNodeHasIsForgotten(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 2)
	m.writer.put(second, "akri-onvif", 1)
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	askInVain(t, m, "0")
	m.writer.put(first, "akri-onvif", 2, "node-b", "node-b")
	m.awaitDevices("akri.sh/"+first, all(unhealthy, first+"-0", first+"-1"))

	_, err := m.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	require.Equal(t, []string{"C:0:node-a"}, m.writer.usage(second))
}

func TestASlotOfUnknownOutcomeIsNotKeptFromOtherVirtualDevices(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.writer.put(second, "akri-onvif", 1)
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	m.writer.remove(second)
	m.awaitDevices(configuration, map[string]string{"0": healthy, "1": unhealthy})
	askInVain(t, m, "0")
	_, err := m.kubelet.allocate(configuration, ids("1"))
	require.NoError(t, err)
	require.Equal(t, []string{"C:1:node-a"}, m.writer.usage(first))
}

func TestOfTwoSlotsOfOneVirtualDeviceTheOneThatNoPodGotIsReleased(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 2)
	m.writer.put(second, "akri-onvif", 2)
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	_, err := m.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	m.pods.set(configuration, "0")
	m.writer.put(second, "akri-onvif", 2, "", "C:0:node-a") // what a process before this one had asked for
	m.awaitUsage(second, "", "")
	require.Equal(t, []string{"C:0:node-a", ""}, m.writer.usage(first))
}

func TestAVirtualDeviceWithTwoSlotsIsGivenWithOneOfThem(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 2, "", "C:0:node-a")
	m.writer.put(second, "akri-onvif", 2, "C:0:node-a", "")
	m.awaitDevices(configuration, all(healthy, "0", "1", "2"))
	_, err := m.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	m.awaitUsage(second, "", "")
	require.Equal(t, []string{"", "C:0:node-a"}, m.writer.usage(first))
}
