package devicepluginhost_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

func TestDevicesAreOfferedByInstanceAndByConfiguration(t *testing.T) {
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 2)
	m.writer.put("unseen-8120fe", "unseen", 1)
	m.seesCameras()
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	m.awaitDevices(configuration, all(healthy, "0"))

	m.writer.put(second, "akri-onvif", 2)
	m.awaitDevices("akri.sh/"+second, all(healthy, second+"-0", second+"-1"))
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	devices, _ := m.kubelet.devices("akri.sh/unseen-8120fe")
	require.Nil(t, devices, "an Instance whose device this node does not see is not offered")
}

func TestASlotThatSomebodyElseHoldsIsUnhealthy(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 5, "", "node-b", "node-a", "C:0:node-a", "C:nonsense")
	m.awaitDevices("akri.sh/"+first, map[string]string{
		first + "-0": healthy, first + "-1": unhealthy, first + "-2": healthy, first + "-3": unhealthy, first + "-4": unhealthy,
	})
	m.awaitDevices(configuration, all(healthy, "0", "1"))

	m.writer.put(first, "akri-onvif", 2, "", "")
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	m.awaitDevices(configuration, all(healthy, "0"))
}

func TestCapacityTakesEffectLive(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.writer.put(first, "akri-onvif", 3, "", "node-b", "node-a")
	m.awaitDevices("akri.sh/"+first, map[string]string{first + "-0": healthy, first + "-1": unhealthy, first + "-2": healthy})
	m.writer.put(first, "akri-onvif", 1, "", "node-b", "node-a")
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-2"))
}

func TestTheKubeletHearsOnlyOfChanges(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.writer.put(second, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+second, all(healthy, second+"-0"))
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.writer.put(second, "akri-onvif", 2)
	m.awaitDevices("akri.sh/"+second, all(healthy, second+"-0", second+"-1"))
	require.Equal(t, 2, m.kubelet.lists("akri.sh/"+second))
	require.Equal(t, 1, m.kubelet.lists("akri.sh/"+first))
}

func TestAfterARestartOfTheKubeletEverythingIsRegisteredAgain(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.awaitDevices(configuration, all(healthy, "0"))
	for range 3 {
		m.kubelet.stop()
		m.kubelet = startKubelet(t, m.config.KubeletDir)
		began := time.Now()
		m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
		m.awaitDevices(configuration, all(healthy, "0"))
		t.Logf("offered again after %s", time.Since(began))
	}
}

func TestHundredsOfResourcesSurviveARestartOfTheKubelet(t *testing.T) {
	m := startMesh(t)
	const count = 300
	var devices []*discoveryv1.Device
	for i := range count {
		name := fmt.Sprintf("akri-onvif-%06x", i)
		m.writer.put(name, "akri-onvif", 5)
		devices = append(devices, camera(name, "rtsp://"+name))
	}
	m.operator.set(cameras(devices...))
	m.awaitResources(count + 1)
	m.kubelet.stop()
	m.kubelet = startKubelet(t, m.config.KubeletDir)
	m.awaitResources(count + 1)
	virtual, _ := m.kubelet.devices(configuration)
	require.Len(t, virtual, count)
}

// awaitResources waits until the kubelet has the devices of that many resources.
func (m *mesh) awaitResources(count int) {
	m.t.Helper()
	began := time.Now()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		m.kubelet.mu.Lock()
		defer m.kubelet.mu.Unlock()
		known := 0
		for _, e := range m.kubelet.endpoints {
			if len(e.devices) > 0 {
				known++
			}
		}
		require.Equal(c, count, known)
	}, 6*soon, 5*time.Millisecond)
	m.t.Logf("%d resources offered after %s", count, time.Since(began))
}

func TestASocketThatIsRemovedIsMadeAgain(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.awaitDevices(configuration, all(healthy, "0"))
	for _, socket := range m.sockets() {
		require.NoError(t, os.Remove(socket))
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Len(c, m.sockets(), 2) }, soon, 2*time.Millisecond)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestAPluginWhoseStreamTheKubeletDropsRegistersAgain(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.kubelet.hangUp()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		m.kubelet.mu.Lock()
		defer m.kubelet.mu.Unlock()
		require.Equal(c, 2, m.kubelet.registrations["akri.sh/"+first])
	}, soon, 2*time.Millisecond)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestAPluginThatTheKubeletGivesUpBeforeItAsksForDevicesRegistersAgain(t *testing.T) {
	m := startMesh(t)
	m.kubelet.mu.Lock()
	m.kubelet.hasty = 1
	m.kubelet.mu.Unlock()
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.awaitDevices(configuration, all(healthy, "0"))
	require.Equal(t, 3, m.kubelet.registered("akri.sh/"+first)+m.kubelet.registered(configuration))
}

func TestADeviceThatIsBackInAMomentIsNotRegisteredAnew(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	for range 3 {
		m.writer.remove(first)
		m.awaitDevices("akri.sh/"+first, all(unhealthy, first+"-0"))
		m.writer.put(first, "akri-onvif", 1)
		m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	}
	_, err := m.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
	require.NoError(t, err)
	require.Equal(t, 1, m.kubelet.registered("akri.sh/"+first))
}

func TestADeviceThatReturnsWaitsUntilTheKubeletSawThatItLeft(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.kubelet.mu.Lock()
	m.kubelet.slow = 300 * time.Millisecond
	m.kubelet.mu.Unlock()
	for range 2 {
		m.writer.remove(first)
		m.awaitDevices("akri.sh/"+first, map[string]string{})
		m.writer.put(first, "akri-onvif", 1)
		m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	}
	require.Never(t, func() bool {
		devices, ended := m.kubelet.devices("akri.sh/" + first)
		return ended || devices[first+"-0"] != healthy
	}, 2*m.kubelet.slow, 5*time.Millisecond, "it takes the end of a former one for that of the last")
	require.Equal(t, 3, m.kubelet.registered("akri.sh/"+first))
}

func TestADeviceThatLeavesIsTakenBackAndMayReturn(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.writer.put(second, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	for range 3 {
		m.writer.remove(first)
		m.awaitGone("akri.sh/" + first)
		m.awaitDevices(configuration, all(healthy, "0"))
		m.writer.put(first, "akri-onvif", 1)
		m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	}
	m.operator.set(cameras())
	m.awaitGone("akri.sh/" + first)
	m.awaitGone(configuration)
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Empty(c, m.sockets()) }, soon, 2*time.Millisecond)
}

func TestAListThatIsNotCompleteRemovesNothing(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.writer.put(second, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.awaitDevices("akri.sh/"+second, all(healthy, second+"-0"))
	partial := cameras(camera(second, "rtsp://moved"))
	partial.Complete = false
	m.operator.set(partial)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		responses, err := m.kubelet.allocate("akri.sh/"+second, ids(second+"-0"))
		require.NoError(c, err)
		require.Equal(c, "rtsp://moved", responses[0].GetEnvs()["URL"])
	}, soon, 2*time.Millisecond)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestTheKubeletMayComeLater(t *testing.T) {
	m := startMesh(t)
	m.kubelet.stop()
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.NotEmpty(c, m.sockets()) }, soon, 2*time.Millisecond)
	m.kubelet = startKubelet(t, m.config.KubeletDir)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestStoppingRemovesTheSocketsAndStartingThoseLeftBehind(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.stopHost()
	require.Empty(t, m.sockets())
	devices, ended := m.kubelet.devices("akri.sh/" + first)
	require.Equal(t, all(unhealthy, first+"-0"), devices, "the kubelet is not told that the device is gone")
	require.True(t, ended)

	leftBehind := filepath.Join(m.config.KubeletDir, "akri-00000000-x.sock")
	require.NoError(t, os.WriteFile(leftBehind, nil, 0o600))
	alive := filepath.Join(m.config.KubeletDir, "akri-00000001-x.sock")
	listener, err := rpc.ListenUnix(t.Context(), alive, 0o600)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	m.startHost()
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	require.NoFileExists(t, leftBehind)
	require.FileExists(t, alive)
}

func TestAnAllocateThatRunsIsAnsweredBeforeTheEnd(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.writer.loseReservations()
	answered := make(chan error, 1)
	go func() {
		_, err := m.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
		answered <- err
	}()
	require.Eventually(t, func() bool { return m.writer.hanging() > 0 }, soon, time.Millisecond)
	m.endHost()
	m.writer.lostReservations() // the next attempt is answered
	require.NoError(t, <-answered)
	m.stopHost()
	require.Equal(t, []string{"node-a"}, m.writer.usage(first))
}

func (m *mesh) sockets() []string {
	sockets, err := filepath.Glob(filepath.Join(m.config.KubeletDir, "akri-*.sock"))
	require.NoError(m.t, err)
	return sockets
}

// awaitGone waits until the kubelet was told that the resource has no devices, and the plugin ended.
func (m *mesh) awaitGone(resource string) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		devices, ended := m.kubelet.devices(resource)
		require.NotNil(c, devices)
		require.Empty(c, devices)
		require.True(c, ended)
	}, soon, 2*time.Millisecond)
}
