package agent_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/rpc"
	"akri.sh/services/agent"
)

func TestADeviceBecomesAnInstanceAndResourcesOfTheKubelet(t *testing.T) {
	w := newWorld(t, "debug-echo")
	w.joins()
	w.startAgent()
	configurations, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	_, err = configurations.In("default").Create(t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: "echo", Namespace: "default"},
		Spec: akriv0.ConfigurationSpec{Capacity: new(int32(1)), DiscoveryHandler: akriv0.DiscoveryHandler{
			Name: "debugEcho", DiscoveryDetails: "descriptions: [foo0]",
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, configurations.In("default").Delete(context.Background(), "echo", metav1.DeleteOptions{}))
	})

	require.Eventually(t, func() bool { return w.kubelet.offered("akri.sh/echo-8120fe") && w.kubelet.offered("akri.sh/echo") }, soon, tick)
	instances, err := kube.Instances(server.Config())
	require.NoError(t, err)
	instance, err := instances.In("default").Get(t.Context(), "echo-8120fe", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{w.node}, instance.Spec.Nodes)
}

func TestAllPartsShareOneRegistryAndOneSetOfChecksAndAStopLeavesNoSockets(t *testing.T) {
	w := newWorld(t, "debug-echo,onvif,opcua,udev")
	w.startAgent()
	awaitReady(t, w.health)
	require.NoError(t, w.health.Live(t.Context()))
	for metric, part := range map[string]string{
		"akri_registrations_total":         "registrar",
		"akri_discovery_handlers":          "registrar",
		"akri_virtual_allocations_total":   "config-plugin-allocator",
		"akri_kubelet_registrations_total": "device-plugin-host",
		"grpc_client_started_total":        "discovery-operator",
		"akri_onvif_cameras":               "handler-onvif",
		"akri_opcua_questions_total":       "handler-opcua",
	} {
		_, err := w.value(metric, "part", part)
		require.NoError(t, err)
	}
	for _, part := range []string{"handler-debug-echo", "handler-onvif", "handler-opcua", "handler-udev"} {
		restarts, err := w.value("akri_embedded_handler_restarts_total", "part", part)
		require.NoError(t, err)
		require.Zero(t, restarts)
	}

	require.NoError(t, w.stop())
	require.NoError(t, filepath.WalkDir(w.folder, func(path string, entry fs.DirEntry, err error) error {
		require.True(t, entry.Type() != fs.ModeSocket || path == w.path("kubelet.sock"), path)
		return err
	}))
}

func TestAHandlerThatEndsIsStartedAgainAndHarmsNobody(t *testing.T) {
	w := newWorld(t, "debug-echo,opcua")
	taken, err := rpc.Listen(t.Context(), w.address("debugEcho.sock")) // by another handler of that name
	require.NoError(t, err)
	w.startAgent()

	require.Eventually(t, func() bool {
		restarts, err := w.value("akri_embedded_handler_restarts_total", "part", "handler-debug-echo")
		require.NoError(t, err)
		return restarts >= 2
	}, soon, tick)
	require.Eventually(t, func() bool {
		count, err := w.value("akri_discovery_handlers", "name", "opcua")
		return err == nil && count == 0 // of those that are Active; that it is counted at all says that it is known
	}, soon, tick)
	require.ErrorContains(t, w.health.Ready(t.Context()), "handler-debug-echo: ")
	require.NoError(t, w.health.Live(t.Context()), "a new process would not help")

	require.NoError(t, taken.Close())
	awaitReady(t, w.health)
	require.NoError(t, w.stop())
}

func TestAnyOtherPartThatEndsEndsTheProcess(t *testing.T) {
	w := newWorld(t, "debug-echo")
	taken, err := rpc.Listen(t.Context(), w.config.ConfigPluginAllocator.Socket)
	require.NoError(t, err)
	defer taken.Close()
	s, err := agent.New(w.config, env(t))
	require.NoError(t, err)
	require.ErrorContains(t, s.Run(t.Context()), "config-plugin-allocator: "+w.path("c")+" is in use by another process")
}

// Its parts notice that they are not wanted at different times; those that are late know nothing of whom a socket belongs to.
func TestASecondAgentEndsAndLeavesTheSocketsOfTheFirst(t *testing.T) {
	w := newWorld(t, "debug-echo")
	w.startAgent()
	awaitReady(t, w.health)
	sockets := func() []string {
		found, err := filepath.Glob(w.path("*"))
		require.NoError(t, err)
		return slices.DeleteFunc(found, func(path string) bool {
			info, err := os.Lstat(path)
			return err == nil && info.Mode().Type() != fs.ModeSocket
		})
	}
	before := sockets()
	require.Contains(t, before, w.path("agent-registration.sock"))
	for range 10 {
		s, err := agent.New(w.config, env(t))
		require.NoError(t, err)
		require.ErrorContains(t, s.Run(t.Context()), "is in use by another process")
		require.Equal(t, before, sockets())
	}
	require.NoError(t, w.stop())
}

func TestWhatIsWrongWithAnyPartIsSaidBeforeItStarts(t *testing.T) {
	w := newWorld(t, "onvif")
	w.config.Registrar.KeepOffline = 0
	w.config.DevicePluginHost.Pod = "x"
	w.config.Onvif.Concurrency = 0
	w.config.Udev.ResyncInterval = 0
	_, err := agent.New(w.config, env(t))
	require.ErrorContains(t, err, "registrar: --keep-offline 0s: want more than 0")
	require.ErrorContains(t, err, `device-plugin-host: --pod "x": want namespace/name`)
	require.ErrorContains(t, err, "handler-onvif: --concurrency 0: must be at least 1")
	require.NotContains(t, err.Error(), "udev", "it is not wanted")
}

func TestAkrisNameForDebugEcho(t *testing.T) {
	t.Setenv("ENABLE_DEBUG_ECHO", "1")
	t.Setenv("DEBUG_ECHO_INSTANCES_SHARED", "false")
	w := newWorld(t, "")
	require.False(t, w.config.DebugEcho.InstancesShared)
	w.startAgent()
	require.Eventually(t, func() bool {
		_, err := w.value("akri_discovery_handlers", "name", "debugEcho")
		return err == nil
	}, soon, tick)
}
