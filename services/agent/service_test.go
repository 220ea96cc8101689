package agent_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/agent"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

func TestDeviceBecomesInstanceAndResource(t *testing.T) {
	h := newHarness(t, "debug-echo")
	h.startAgent()
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

	require.Eventually(t, func() bool { return h.kubelet.offered("akri.sh/echo-8120fe") && h.kubelet.offered("akri.sh/echo") }, timeout, tick)
	instances, err := kube.Instances(server.Config())
	require.NoError(t, err)
	instance, err := instances.In("default").Get(t.Context(), "echo-8120fe", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{h.node}, instance.Spec.Nodes)
	awaitReady(t, h.health)
	require.EqualValues(t, 1, h.connections.Load(), "the components share a connection")
}

// A replica of instance-writer without memory refuses the calls. The connection that the components
// share reaches another one.
func TestFullReplica(t *testing.T) {
	h := newHarness(t, "debug-echo")
	replicas := rpctest.ServeReplicas(t, h.address("w"), func(r grpc.ServiceRegistrar) {
		instancev1.RegisterInstanceServiceServer(r, instancev1.UnimplementedInstanceServiceServer{})
	})
	operator, host := &h.config.DiscoveryOperator, &h.config.DevicePluginHost
	operator.InstanceWriter, operator.InstanceWriterCA, operator.InstanceWriterToken = h.address("w"), "", ""
	host.InstanceWriter, host.InstanceWriterCA, host.InstanceWriterToken = h.address("w"), "", ""
	h.startAgent()

	require.Eventually(t, func() bool { return replicas.Connections() > 1 }, timeout, tick)
}

// With Dynamic Resource Allocation the agent serves the relay, and advertises no devices.
func TestDynamicResourceAllocation(t *testing.T) {
	h := newHarness(t, "debug-echo", "--resources=dra")
	h.startAgent()
	registration := registrationv1.NewRegistrationClient(rpctest.Dial(t, h.address("p")))
	info, err := registration.GetInfo(t.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Equal(t, "akri.sh", info.GetName())
	_, err = registration.NotifyRegistrationStatus(t.Context(), &registrationv1.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	awaitReady(t, h.health)
	require.EqualValues(t, 1, h.connections.Load(), "the components share a connection")
	_, err = h.value("akri_dra_prepared_claims", "part", "dra-kubelet-plugin")
	require.NoError(t, err)
	_, err = h.value("akri_device_plugins", "part", "device-plugin-host")
	require.Error(t, err)
	require.NoError(t, h.stop())
}

// While the cluster has not decided how Pods get devices, the agent runs the services of both forms
// on one connection, and is ready. It registers nothing with the kubelet.
func TestUndecidedResources(t *testing.T) {
	h := newHarness(t, "debug-echo", "--resources=auto")
	h.startAgent()
	awaitReady(t, h.health)
	require.EqualValues(t, 1, h.connections.Load(), "the components share a connection")
	for metric, part := range map[string]string{
		"akri_dra_prepared_claims": "dra-kubelet-plugin", "akri_device_plugins": "device-plugin-host",
		"akri_virtual_allocations_total": "config-plugin-allocator",
	} {
		_, err := h.value(metric, "part", part)
		require.NoError(t, err, metric)
	}

	request := &healthv1.HealthCheckRequest{Service: relay.Registration}
	client := healthv1.NewHealthClient(rpctest.Dial(t, h.address("p")))
	require.Eventually(t, func() bool {
		response, err := client.Check(t.Context(), request, grpc.WaitForReady(true))
		return err == nil && response.GetStatus() == healthv1.HealthCheckResponse_NOT_SERVING
	}, timeout, tick)
	require.NoError(t, h.stop())
}

func TestComponentsShareMetricsAndHealth(t *testing.T) {
	h := newHarness(t, "debug-echo,onvif,opcua,udev")
	h.startAgent()
	awaitReady(t, h.health)
	require.NoError(t, h.health.Live(t.Context()))
	for metric, part := range map[string]string{
		"akri_registrations_total":         "registrar",
		"akri_discovery_handlers":          "registrar",
		"akri_virtual_allocations_total":   "config-plugin-allocator",
		"akri_kubelet_registrations_total": "device-plugin-host",
		"grpc_client_started_total":        "discovery-operator",
		"akri_onvif_cameras":               "handler-onvif",
		"akri_opcua_questions_total":       "handler-opcua",
	} {
		_, err := h.value(metric, "part", part)
		require.NoError(t, err)
	}
	for _, part := range []string{"handler-debug-echo", "handler-onvif", "handler-opcua", "handler-udev"} {
		restarts, err := h.value("akri_embedded_handler_restarts_total", "part", part)
		require.NoError(t, err)
		require.Zero(t, restarts)
	}

	require.NoError(t, h.stop())
	require.NoError(t, filepath.WalkDir(h.directory, func(path string, entry fs.DirEntry, err error) error {
		require.True(t, entry.Type() != fs.ModeSocket || path == h.path("kubelet.sock"), path)
		return err
	}))
}

func TestHandlerIsRestartedAfterExit(t *testing.T) {
	h := newHarness(t, "debug-echo,opcua")
	taken, err := rpc.Listen(t.Context(), zap.NewNop(), h.address("debugEcho.sock")) // another handler with this name
	require.NoError(t, err)
	h.startAgent()

	require.Eventually(t, func() bool {
		restarts, err := h.value("akri_embedded_handler_restarts_total", "part", "handler-debug-echo")
		require.NoError(t, err)
		return restarts >= 2
	}, timeout, tick)
	require.Eventually(t, func() bool {
		count, err := h.value("akri_discovery_handlers", "name", "opcua")
		return err == nil && count == 0 // no Active endpoint; the label exists once the handler is registered
	}, timeout, tick)
	require.ErrorContains(t, h.health.Ready(t.Context()), "handler-debug-echo: ")
	require.NoError(t, h.health.Live(t.Context()), "a restart of the process would not help")

	require.NoError(t, taken.Close())
	awaitReady(t, h.health)
	require.NoError(t, h.stop())
}

func TestExitOfRequiredComponentEndsAgent(t *testing.T) {
	h := newHarness(t, "debug-echo")
	taken, err := rpc.Listen(t.Context(), zap.NewNop(), h.config.ConfigPluginAllocator.Socket)
	require.NoError(t, err)
	defer taken.Close()
	s, err := agent.New(h.config, env(t))
	require.NoError(t, err)
	require.ErrorContains(t, s.Run(t.Context()), "config-plugin-allocator: "+h.path("c")+" is in use by another process")
}

// The components of the second agent fail one after the other; none may remove a socket of the
// first agent.
func TestSecondAgentKeepsSocketsOfTheFirst(t *testing.T) {
	h := newHarness(t, "debug-echo")
	h.startAgent()
	awaitReady(t, h.health)
	sockets := func() []string {
		found, err := filepath.Glob(h.path("*"))
		require.NoError(t, err)
		return slices.DeleteFunc(found, func(path string) bool {
			info, err := os.Lstat(path)
			return err == nil && info.Mode().Type() != fs.ModeSocket
		})
	}
	before := sockets()
	require.Contains(t, before, h.path("agent-registration.sock"))
	for range 10 {
		s, err := agent.New(h.config, env(t))
		require.NoError(t, err)
		require.ErrorContains(t, s.Run(t.Context()), "is in use by another process")
		require.Equal(t, before, sockets())
	}
	require.NoError(t, h.stop())
}

func TestNewReportsErrorsOfAllComponents(t *testing.T) {
	h := newHarness(t, "onvif")
	h.config.Registrar.KeepOffline = 0
	h.config.DevicePluginHost.Pod = "x"
	h.config.Onvif.Concurrency = 0
	h.config.Udev.ResyncInterval = 0
	_, err := agent.New(h.config, env(t))
	require.ErrorContains(t, err, "registrar: --keep-offline 0s: must be more than 0")
	require.ErrorContains(t, err, `device-plugin-host: --pod: "x" must have the form namespace/name`)
	require.ErrorContains(t, err, "handler-onvif: --concurrency 0: must be at least 1")
	require.NotContains(t, err.Error(), "udev", "udev is not enabled")
}

func TestUpstreamVariablesForDebugEcho(t *testing.T) {
	t.Setenv("ENABLE_DEBUG_ECHO", "1")
	t.Setenv("DEBUG_ECHO_INSTANCES_SHARED", "false")
	h := newHarness(t, "")
	require.False(t, h.config.DebugEcho.InstancesShared)
	h.startAgent()
	require.Eventually(t, func() bool {
		_, err := h.value("akri_discovery_handlers", "name", "debugEcho")
		return err == nil
	}, timeout, tick)
}
