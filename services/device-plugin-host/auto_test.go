package devicepluginhost_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const (
	undecided    = instancev1.Resources_RESOURCES_UNSPECIFIED
	devicePlugin = instancev1.Resources_RESOURCES_DEVICE_PLUGIN
	dra          = instancev1.Resources_RESOURCES_DRA
)

// startAutoFixture starts a host whose cluster decides how Pods get devices. The node sees a camera
// with two slots.
func startAutoFixture(t *testing.T) *fixture {
	t.Helper()
	f := startFixture(t)
	f.stopHost()
	f.config.Resources = node.ResourcesAuto
	f.startHost()
	f.writer.Put(first, "akri-onvif", 2)
	f.operator.set(cameras(camera(first, "rtsp://first")))
	f.awaitReady()
	return f
}

// awaitIdle waits until the host has no device plugin and does not manage the slots.
func (f *fixture) awaitIdle() {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) {
		unlock, err := slots.TryLock(f.config.KubeletDir)
		require.NoError(c, err)
		unlock()
		require.Empty(c, f.sockets())
		require.Zero(c, f.devicePlugins())
	})
}

// devicePlugins returns akri_device_plugins.
func (f *fixture) devicePlugins() float64 {
	families, err := f.metrics.Gather()
	require.NoError(f.t, err)
	for _, family := range families {
		if family.GetName() == "akri_device_plugins" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// Until instance-writer states that Pods get devices from device plugins, the host is ready and
// offers nothing, whether instance-writer sends no form, no decision or the other form.
func TestNoDevicesBeforeDecision(t *testing.T) {
	t.Parallel()
	f := startAutoFixture(t)
	for _, state := range []func(){
		func() {}, func() { f.writer.SetResources(undecided) }, func() { f.writer.SetResources(dra) },
	} {
		state()
		require.Never(t, func() bool { return f.kubelet.registered("akri.sh/"+first)+f.kubelet.registered(configuration) > 0 },
			300*time.Millisecond, 10*time.Millisecond)
		f.awaitIdle()
		f.awaitReady()
	}
	f.writer.SetResources(devicePlugin)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	f.awaitDevices(configuration, all(healthy, "0"))
	require.EqualValues(t, 2, f.devicePlugins())
}

// The form changes and returns while Pods run: the plugins end, the slots stay, and the next
// plugins offer the other slots and release those of Pods that have ended meanwhile.
func TestFormChangesUnderPods(t *testing.T) {
	t.Parallel()
	f := startAutoFixture(t)
	f.kubelet.setAllocated(map[string][]string{})
	resource := "akri.sh/" + first
	f.writer.SetResources(devicePlugin)
	f.awaitDevices(resource, all(healthy, first+"-0", first+"-1"))
	f.awaitDevices(configuration, all(healthy, "0"))
	_, err := f.kubelet.allocate(resource, ids(first+"-0"))
	require.NoError(t, err)
	f.pods.set(resource, first+"-0")

	for range 3 {
		f.writer.SetResources(dra)
		f.awaitIdle()
		for _, name := range []string{resource, configuration} {
			f.eventually(func(c *assert.CollectT) {
				_, ended := f.kubelet.devices(name)
				require.True(c, ended)
			})
		}
		require.Equal(t, []string{"node-a", ""}, f.writer.Usage(first))
		f.writer.SetResources(devicePlugin)
		f.awaitDevices(resource, all(healthy, first+"-0", first+"-1"))
		require.Equal(t, []string{"node-a", ""}, f.writer.Usage(first))
	}
	f.pods.set("")
	require.Eventually(t, func() bool { return f.writer.Usage(first)[0] == "" }, time.Minute, 10*time.Millisecond)
}

// The form changes to another one and back before the kubelet has processed the ends of the device
// plugins. It would take them for the ends of the next plugins of the resources.
func TestFormReturnsAtOnce(t *testing.T) {
	t.Parallel()
	f := startAutoFixture(t)
	f.kubelet.mu.Lock()
	f.kubelet.processDelay = 50 * time.Millisecond
	f.kubelet.mu.Unlock()
	f.writer.SetResources(devicePlugin)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	f.writer.SetResources(dra)
	f.awaitIdle()
	f.writer.SetResources(devicePlugin)
	f.eventually(func(c *assert.CollectT) { require.Equal(c, 2, f.kubelet.registered("akri.sh/"+first)) })
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	require.Never(t, func() bool { _, ended := f.kubelet.devices("akri.sh/" + first); return ended }, 300*time.Millisecond, 10*time.Millisecond)
	require.Equal(t, 2, f.kubelet.registered("akri.sh/"+first))
}

// While instance-writer is unreachable the last form stays: device plugins are offered, and none
// are.
func TestFormStaysWithoutWriter(t *testing.T) {
	t.Parallel()
	f := startAutoFixture(t)
	resource := "akri.sh/" + first
	f.writer.SetResources(devicePlugin)
	f.awaitDevices(resource, all(healthy, first+"-0", first+"-1"))
	f.stopWriter()
	require.Never(t, func() bool { _, ended := f.kubelet.devices(resource); return ended }, 500*time.Millisecond, 10*time.Millisecond)
	f.kubelet.stop()
	f.kubelet = startKubelet(t, f.config.KubeletDir)
	f.awaitDevices(resource, all(healthy, first+"-0", first+"-1"))

	f.startWriter()
	f.writer.SetResources(dra)
	f.awaitIdle()
	f.stopWriter()
	f.kubelet.stop()
	f.kubelet = startKubelet(t, f.config.KubeletDir)
	require.Never(t, func() bool { return f.kubelet.registered(resource) > 0 }, 500*time.Millisecond, 10*time.Millisecond)
	f.startWriter()
}

// A host that stands by while its form ends does not wait for the lock any more, and takes over
// when the form returns.
func TestSecondHostFollowsForm(t *testing.T) {
	t.Parallel()
	f := startAutoFixture(t)
	f.writer.SetResources(devicePlugin)
	f.awaitDevices(configuration, all(healthy, "0"))
	stopFirst := f.stopHost
	f.startHost()
	f.awaitReady()
	f.writer.SetResources(dra)
	stopFirst()
	f.awaitIdle()
	f.writer.SetResources(devicePlugin)
	f.awaitDevices(configuration, all(healthy, "0"))
}
