package drakubeletplugin_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"akri.sh/libs/admin"
	"akri.sh/libs/node"
	"akri.sh/libs/node/instancetest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

const (
	undecided    = instancev1.Resources_RESOURCES_UNSPECIFIED
	devicePlugin = instancev1.Resources_RESOURCES_DEVICE_PLUGIN
	dra          = instancev1.Resources_RESOURCES_DRA
)

// autoPod is a Pod of the service with its relay on a node whose cluster decides how Pods get
// devices.
type autoPod struct {
	t             *testing.T
	config        drakubeletplugin.Config
	plugin, relay *admin.Health
	stop          func()
}

func newAutoPod(t *testing.T, writer *instancetest.Writer) *autoPod {
	t.Helper()
	config := newConfig(t, writer)
	config.Resources = node.ResourcesAuto
	return &autoPod{t: t, config: config}
}

func (p *autoPod) start() {
	p.t.Helper()
	var stopPlugin, stopRelay func()
	p.plugin, stopPlugin = run(p.t, drakubeletplugin.New, p.config)
	p.relay, stopRelay = run(p.t, relay.New, relayTo(p.config))
	p.stop = func() {
		stopPlugin()
		stopRelay()
		require.Eventually(p.t, func() bool { return !p.served() }, time.Minute, 10*time.Millisecond)
	}
}

// restart replaces both processes.
func (p *autoPod) restart() {
	p.t.Helper()
	p.stop()
	p.start()
}

// served reports whether a process of the Pod has a socket.
func (p *autoPod) served() bool {
	_, pluginErr := os.Stat(p.config.Socket[len("unix://"):])
	return p.registers() || pluginErr == nil
}

// registers reports whether the relay has a socket for the kubelet.
func (p *autoPod) registers() bool {
	_, err := os.Stat(p.socket())
	return err == nil
}

func (p *autoPod) socket() string {
	return filepath.Join(relayTo(p.config).RegistryDir, "akri.sh-plugin.sock")
}

func (p *autoPod) awaitReady() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.plugin.Ready(p.t.Context()) == nil && p.relay.Ready(p.t.Context()) == nil },
		10*time.Second, 10*time.Millisecond)
}

// awaitSocket waits until the relay has a socket for the kubelet.
func (p *autoPod) awaitSocket() {
	p.t.Helper()
	require.Eventually(p.t, p.registers, time.Minute, 10*time.Millisecond)
}

// register registers the driver, as a kubelet does.
func (p *autoPod) register() *grpc.ClientConn {
	p.t.Helper()
	p.awaitSocket()
	conn := dial(p.t, relayTo(p.config), "akri.sh-plugin.sock")
	client := registrationv1.NewRegistrationClient(conn)
	info, err := client.GetInfo(p.t.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(p.t, err)
	require.Equal(p.t, "akri.sh", info.GetName())
	_, err = client.NotifyRegistrationStatus(p.t.Context(), &registrationv1.RegistrationStatus{PluginRegistered: true})
	require.NoError(p.t, err)
	return conn
}

// The relay has no socket for the kubelet, and is ready, until Pods on the node get devices by
// Dynamic Resource Allocation, whether instance-writer sends no form, no decision or the other
// form. An earlier Pod does not end before this one has registered: the relay is not ready while
// the plugin cannot decide, and while it is not registered.
func TestNoRegistrationBeforeDecision(t *testing.T) {
	t.Parallel()
	for name, resources := range map[string]*instancev1.Resources{
		"no form": nil, "no decision": new(undecided), "device plugins": new(devicePlugin),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writer := newWriter("")
			if resources != nil {
				writer.SetResources(*resources)
			}
			pod := newAutoPod(t, writer)
			health, stop := run(t, relay.New, relayTo(pod.config))
			require.Never(t, func() bool { return health.Ready(t.Context()) == nil }, 300*time.Millisecond, 10*time.Millisecond, "no plugin")
			stop()
			pod.start()
			pod.awaitReady()
			require.Never(t, pod.registers, 2*time.Second, 10*time.Millisecond)

			writer.SetResources(dra)
			pod.awaitSocket()
			require.Error(t, pod.relay.Ready(t.Context()), "not registered yet")
			pod.register()
			pod.awaitReady()
		})
	}
}

// The driver stays registered when Pods get devices from device plugins again, also after its Pod
// was replaced: the kubelet cannot end a Pod whose claim it could not prepare without the driver.
func TestRegistrationStays(t *testing.T) {
	t.Parallel()
	writer := newWriter("node-b") // no slot is free
	writer.SetResources(dra)
	pod := newAutoPod(t, writer)
	pod.start()
	pod.register()
	pod.awaitReady()

	writer.SetResources(devicePlugin)
	pod.restart()
	kubelet := kubeletCalls{drav1.NewDRAPluginClient(pod.register())}
	require.NoError(t, kubelet.unprepare(t.Context(), putClaim(writer, "uid")))
	pod.awaitReady()
}

// A claim that is prepared makes the service register, also if the record of the registration does
// not exist: an earlier version wrote none.
func TestPreparedClaimIsUnprepared(t *testing.T) {
	t.Parallel()
	writer := newWriter("")
	writer.SetResources(dra)
	pod := newAutoPod(t, writer)
	pod.start()
	claim := putClaim(writer, "uid")
	kubelet := kubeletCalls{drav1.NewDRAPluginClient(pod.register())}
	require.NoError(t, kubelet.prepare(t.Context(), claim))

	writer.SetResources(devicePlugin)
	pod.stop()
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(pod.socket()), ".akri.sh")))
	pod.start()
	kubelet = kubeletCalls{drav1.NewDRAPluginClient(pod.register())}
	require.Equal(t, []string{"D:uid:node-a"}, writer.Usage(camera))
	require.NoError(t, kubelet.unprepare(t.Context(), claim))
	require.Equal(t, []string{""}, writer.Usage(camera))
}
