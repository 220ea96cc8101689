package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices"
)

// scenario is one thing that must hold.
type scenario struct {
	name string
	run  func(*testing.T)
}

// TestMesh runs the scenarios on one installation: first those that live beside others, then, one after the other, those that
// break or change what all stand on.
func TestMesh(t *testing.T) {
	require.NoError(t, akri.Install(t.Context(), "opcua.discovery.enabled=true", "onvif.discovery.enabled=true"))
	if !together(t, "side by side", []scenario{
		{"bad input is refused with a message and harms nothing else", badInput},
		{"a Job that fails twice succeeds, and runs once", failingJob},
		{"as many pods as there is capacity run on two nodes that want more", crowdedDevice},
		{"a plugged device becomes an Instance, a resource and a broker that reads from it, and leaves and comes back", pluggedDevice},
		{"a shared device is one Instance that lists both nodes, a local one is one per node", sharedDevice},
		{"a user's own pods get devices by Instance and by Configuration", ownPods},
		{"two containers of a pod get two devices of a Configuration each, after an init container that got one", severalDevices},
		{"a pod gets one device by its Instance and by its Configuration, and neither offers more than its capacity", bothLevels},
		{"capacity is raised and lowered under running pods", changedCapacity},
		{"a device that changes reaches the next pod, and the former keeps what it has", changedDevice},
		{"a Configuration is deleted and made anew under running pods, which keep their slots", recreatedConfiguration},
		{"of two Configurations of one name in two namespaces the second is refused", sameName},
		{"pods that ask for more devices than there are wait until another is discovered", waitingPods},
		{"a pod that is denied a device says why", deniedPod},
		{"Services lead pods to brokers, and spread", servicesOfBrokers},
		{"a mistake is refused when it is applied, all at once", refusedByWebhook},
		{"a broker that is deleted is back at once", deletedBroker},
		{"brokers follow what becomes of them and of their devices", brokersThatChange},
		{"an edit replaces one broker at a time, and only where it changes something", editedBrokers},
		{"OPC UA servers that nobody here wrote are found, directly and through their discovery server, and brokers know their address", opcuaServers},
		{"the tutorial's handler finds what an HTTP endpoint lists, by the commands of the tutorial", tutorial},
		{"a camera that wants credentials gets brokers and keeps them when its password is rotated", authenticatedCamera},
	}) {
		return
	}
	// Of these the one wants nothing of broker-controller, and the other touches nothing else.
	if !together(t, "two at a time", []scenario{
		{"a pod that is deleted is followed by one that gets its device, every time", recreatedPods},
		{"when the leader is killed another acts, and nothing doubles", leaderKilled},
	}) {
		return
	}
	for _, scenario := range []scenario{
		{"a device that comes and goes while it is allocated is there in the end", flappingDevice},
		{"a node that was off for a moment gets back what it had", nodeOffForAMoment},
		{"killing any service loses nothing and devices are still found", killServices},
		{"slots survive what a cluster can go through", slotsSurvive},
		{"scaling and swapping a service under running brokers loses nothing", scaleAndSwap},
		{"the services of a node take over from the agent and it from them, under running brokers", changedForm},
		{"what waits for minutes by default happens in the end", withoutPatience},
		{"uninstalling leaves nothing behind", uninstall},
	} {
		if !t.Run(scenario.name, scenario.run) {
			return // the later ones would fail for the same reason
		}
	}
}

// together runs scenarios at the same time and waits for all.
func together(t *testing.T, name string, scenarios []scenario) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) {
		for _, scenario := range scenarios {
			t.Run(scenario.name, func(t *testing.T) {
				t.Parallel()
				scenario.run(t)
			})
		}
	})
}

// plug plugs a device in until the test ends or it is unplugged.
func plug(t *testing.T, content string) *devices.Zram {
	t.Helper()
	zram, err := devices.PlugZram(t.Context(), content)
	require.NoError(t, err)
	t.Cleanup(func() { unplug(t, zram) })
	return zram
}

// unplug is harmless when it was done before.
func unplug(t *testing.T, zram *devices.Zram) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	require.NoError(t, zram.Unplug(ctx))
}

// apply applies a manifest until the test ends.
func apply(t *testing.T, manifest string) {
	t.Helper()
	require.NoError(t, akri.ApplyText(t.Context(), manifest))
	t.Cleanup(func() {
		require.NoError(t, akri.DeleteText(context.WithoutCancel(t.Context()), manifest))
	})
}
