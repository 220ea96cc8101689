package devicepluginhost_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

func TestAdvertiseInstancesAndConfigurations(t *testing.T) {
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 2)
	f.writer.Put("unseen-8120fe", "unseen", 1)
	f.seeCameras()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	f.awaitDevices(configuration, all(healthy, "0"))

	f.writer.Put(second, "akri-onvif", 2)
	f.awaitDevices("akri.sh/"+second, all(healthy, second+"-0", second+"-1"))
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	devices, _ := f.kubelet.devices("akri.sh/unseen-8120fe")
	require.Nil(t, devices, "the node does not see the device of this Instance")
}

// A replica of instance-writer without memory refuses the streams. The host reaches another one.
func TestFullReplica(t *testing.T) {
	f := startFixture(t)
	f.stopHost()
	f.stopWriter()
	rpctest.ServeReplicas(t, f.config.InstanceWriter, func(r grpc.ServiceRegistrar) { instancev1.RegisterInstanceServiceServer(r, f.writer) })
	f.startHost()

	f.writer.Put(first, "akri-onvif", 1)
	f.seeCameras()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestTakenSlotIsUnhealthy(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 5, "", "node-b", "node-a", "C:0:node-a", "C:nonsense")
	f.awaitDevices("akri.sh/"+first, map[string]string{
		first + "-0": healthy, first + "-1": unhealthy, first + "-2": healthy, first + "-3": unhealthy, first + "-4": unhealthy,
	})
	f.awaitDevices(configuration, all(healthy, "0", "1"))

	f.writer.Put(first, "akri-onvif", 2, "", "")
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	f.awaitDevices(configuration, all(healthy, "0"))
}

func TestCapacityChange(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.writer.Put(first, "akri-onvif", 3, "", "node-b", "node-a")
	f.awaitDevices("akri.sh/"+first, map[string]string{first + "-0": healthy, first + "-1": unhealthy, first + "-2": healthy})
	f.writer.Put(first, "akri-onvif", 1, "", "node-b", "node-a")
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-2"))
}

func TestOnlyChangesAreSent(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.writer.Put(second, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+second, all(healthy, second+"-0"))
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.writer.Put(second, "akri-onvif", 2)
	f.awaitDevices("akri.sh/"+second, all(healthy, second+"-0", second+"-1"))
	require.Equal(t, 2, f.kubelet.lists("akri.sh/"+second))
	require.Equal(t, 1, f.kubelet.lists("akri.sh/"+first))
}

func TestRegisterAgainAfterKubeletRestart(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitDevices(configuration, all(healthy, "0"))
	for range 3 {
		f.kubelet.stop()
		f.kubelet = startKubelet(t, f.config.KubeletDir)
		restarted := time.Now()
		f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
		f.awaitDevices(configuration, all(healthy, "0"))
		t.Logf("registered %s after the restart", time.Since(restarted))
	}
}

func TestKubeletRestartWithHundredsOfResources(t *testing.T) {
	f := startFixture(t)
	const count = 300
	var devices []*discoveryv1.Device
	for i := range count {
		name := fmt.Sprintf("akri-onvif-%06x", i)
		f.writer.Put(name, "akri-onvif", 5)
		devices = append(devices, camera(name, "rtsp://"+name))
	}
	f.operator.set(cameras(devices...))
	f.awaitResources(count + 1)
	f.kubelet.stop()
	f.kubelet = startKubelet(t, f.config.KubeletDir)
	f.awaitResources(count + 1)
	virtual, _ := f.kubelet.devices(configuration)
	require.Len(t, virtual, count)
}

// awaitResources waits until the kubelet has devices of that many resources.
func (f *fixture) awaitResources(count int) {
	f.t.Helper()
	started := time.Now()
	require.EventuallyWithT(f.t, func(c *assert.CollectT) {
		f.kubelet.mu.Lock()
		defer f.kubelet.mu.Unlock()
		registered := 0
		for _, e := range f.kubelet.endpoints {
			if len(e.devices) > 0 {
				registered++
			}
		}
		require.Equal(c, count, registered)
	}, 6*timeout, 5*time.Millisecond)
	f.t.Logf("%d resources registered after %s", count, time.Since(started))
}

func TestRemovedSocketIsCreatedAgain(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitDevices(configuration, all(healthy, "0"))
	for _, socket := range f.sockets() {
		require.NoError(t, os.Remove(socket))
	}
	f.eventually(func(c *assert.CollectT) { require.Len(c, f.sockets(), 2) })
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestRegisterAgainAfterDisconnect(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.kubelet.closeConnections()
	f.eventually(func(c *assert.CollectT) { require.Equal(c, 2, f.kubelet.registered("akri.sh/"+first)) })
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestRegisterAgainAfterDisconnectBeforeList(t *testing.T) {
	f := startFixture(t)
	f.kubelet.mu.Lock()
	f.kubelet.hangUps = 1
	f.kubelet.mu.Unlock()
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitDevices(configuration, all(healthy, "0"))
	require.Equal(t, 3, f.kubelet.registered("akri.sh/"+first)+f.kubelet.registered(configuration))
}

func TestDeviceThatReturnsSoonKeepsRegistration(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	for range 3 {
		f.writer.Remove(first)
		f.awaitDevices("akri.sh/"+first, all(unhealthy, first+"-0"))
		f.writer.Put(first, "akri-onvif", 1)
		f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	}
	_, err := f.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
	require.NoError(t, err)
	require.Equal(t, 1, f.kubelet.registered("akri.sh/"+first))
}

// The kubelet would take the end of an earlier plugin of the resource for the end of the new one.
func TestReturnedDeviceRegistersAfterDisconnect(t *testing.T) {
	f := startFixture(t)
	resource := "akri.sh/" + first
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices(resource, all(healthy, first+"-0"))
	f.kubelet.mu.Lock()
	f.kubelet.disconnectDelay = 300 * time.Millisecond
	f.kubelet.mu.Unlock()
	for range 2 {
		f.writer.Remove(first)
		f.awaitDevices(resource, map[string]string{})
		f.writer.Put(first, "akri-onvif", 1)
		f.awaitDevices(resource, all(healthy, first+"-0"))
	}
	f.eventually(func(c *assert.CollectT) { require.Equal(c, 2, f.kubelet.disconnected(resource)) })
	devices, ended := f.kubelet.devices(resource)
	require.Equal(t, all(healthy, first+"-0"), devices)
	require.False(t, ended)
	require.Equal(t, 3, f.kubelet.registered(resource))
}

func TestRemovedDeviceMayReturn(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.writer.Put(second, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	for range 3 {
		f.writer.Remove(first)
		f.awaitRemoved("akri.sh/" + first)
		f.awaitDevices(configuration, all(healthy, "0"))
		f.writer.Put(first, "akri-onvif", 1)
		f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	}
	f.operator.set(cameras())
	f.awaitRemoved("akri.sh/" + first)
	f.awaitRemoved(configuration)
	f.eventually(func(c *assert.CollectT) { require.Empty(c, f.sockets()) })
}

func TestIncompleteListRemovesNoDevice(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.writer.Put(second, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitDevices("akri.sh/"+second, all(healthy, second+"-0"))
	incomplete := cameras(camera(second, "rtsp://moved"))
	incomplete.Complete = false
	f.operator.set(incomplete)
	f.eventually(func(c *assert.CollectT) {
		responses, err := f.kubelet.allocate("akri.sh/"+second, ids(second+"-0"))
		require.NoError(c, err)
		require.Equal(c, "rtsp://moved", responses[0].GetEnvs()["URL"])
	})
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestKubeletStartsLater(t *testing.T) {
	f := startFixture(t)
	f.kubelet.stop()
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.eventually(func(c *assert.CollectT) { require.NotEmpty(c, f.sockets()) })
	f.kubelet = startKubelet(t, f.config.KubeletDir)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestStopAndStartRemoveSockets(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.stopHost()
	require.Empty(t, f.sockets())
	// The kubelet receives the end of the stream after the host has stopped.
	f.eventually(func(c *assert.CollectT) {
		devices, ended := f.kubelet.devices("akri.sh/" + first)
		require.True(c, ended)
		require.Equal(c, all(unhealthy, first+"-0"), devices, "no empty list is sent")
	})

	stale := filepath.Join(f.config.KubeletDir, "akri-00000000-x.sock")
	require.NoError(t, os.WriteFile(stale, nil, 0o600))
	served := filepath.Join(f.config.KubeletDir, "akri-00000001-x.sock")
	listener, err := rpc.Socket{Path: served}.Bind(t.Context())
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	f.startHost()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	require.NoFileExists(t, stale)
	require.FileExists(t, served)
}

func TestStopAnswersRunningAllocate(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.writer.HangReservations()
	answered := make(chan error, 1)
	go func() {
		_, err := f.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
		answered <- err
	}()
	f.awaitHangingReservation()
	f.cancelHost()
	f.writer.AnswerReservations() // the next attempt succeeds
	require.NoError(t, <-answered)
	f.stopHost()
	require.Equal(t, []string{"node-a"}, f.writer.Usage(first))
}

func (f *fixture) awaitHangingReservation() {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) {
		_, reservations := f.writer.Hanging()
		require.Positive(c, reservations)
	})
}

func (f *fixture) awaitHangingRelease() {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) {
		releases, _ := f.writer.Hanging()
		require.Positive(c, releases)
	})
}
