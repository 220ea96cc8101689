package drakubeletplugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"akri.sh/libs/admin"
	"akri.sh/libs/node/instancetest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

// TestMain turns the test binary into the service when BE_THE_SERVICE is set.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_SERVICE") != "" {
		service.Main("dra-kubelet-plugin", "Prepares.", drakubeletplugin.New)
		return
	}
	goleak.VerifyTestMain(m)
}

const camera = "cameras-8120fe"

// fakeOperator is a discovery-operator that sees one camera.
type fakeOperator struct {
	discoveryv1.UnimplementedDeviceInventoryServiceServer
}

// WatchDevices implements the API of discovery-operator.
func (fakeOperator) WatchDevices(
	_ *discoveryv1.WatchDevicesRequest, stream grpc.ServerStreamingServer[discoveryv1.WatchDevicesResponse],
) error {
	camera := &discoveryv1.Device{Id: "camera", Instance: camera, Properties: map[string]string{"URL": "rtsp://camera"}}
	err := stream.Send(&discoveryv1.WatchDevicesResponse{Configurations: []*discoveryv1.ConfigurationDevices{
		{Namespace: "default", Name: "cameras", Complete: true, Devices: []*discoveryv1.Device{camera}},
	}})
	<-stream.Context().Done()
	return err
}

// newWriter returns an instance-writer with the Instance of the camera, whose slot has the value in
// deviceUsage.
func newWriter(usage string) *instancetest.Writer {
	writer := instancetest.New()
	writer.PutDevice("camera", camera, "cameras", 1, usage)
	return writer
}

// startService starts the service until the end of the test.
func startService(t *testing.T, writer *instancetest.Writer) (drakubeletplugin.Config, *admin.Health) {
	t.Helper()
	config := newConfig(t, writer)
	health, _ := run(t, drakubeletplugin.New, config)
	return config, health
}

func newConfig(t *testing.T, writer *instancetest.Writer) drakubeletplugin.Config {
	t.Helper()
	directory, err := os.MkdirTemp("", "d") //nolint:usetesting // paths of t.TempDir are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(directory)) })
	config := drakubeletplugin.Config{
		NodeName: "node-a", Socket: "unix://" + filepath.Join(directory, "s"), CDIDir: filepath.Join(directory, "cdi"),
		Pod: "akri/plugin", KubeletDir: filepath.Join(directory, "plugins"), PodResources: filepath.Join(directory, "pods.sock"),
		DiscoveryOperator: rpctest.Serve(t, func(r grpc.ServiceRegistrar) { discoveryv1.RegisterDeviceInventoryServiceServer(r, fakeOperator{}) }),
		InstanceWriter:    rpctest.Serve(t, func(r grpc.ServiceRegistrar) { instancev1.RegisterInstanceServiceServer(r, writer) }),
	}
	require.NoError(t, os.Mkdir(config.KubeletDir, 0o700))
	return config
}

// relayTo returns the configuration of the relay of a plugin.
func relayTo(plugin drakubeletplugin.Config) relay.Config {
	return relay.Config{Pod: plugin.Pod, RegistryDir: filepath.Join(filepath.Dir(plugin.CDIDir), "registry"), Plugin: plugin.Socket}
}

// run runs a service until stop, or the end of the test.
func run[C any, R service.Runner](t *testing.T, create func(C, service.Env) (R, error), config C) (health *admin.Health, stop func()) {
	t.Helper()
	health = &admin.Health{}
	s, err := create(config, service.Env{Log: zap.NewNop(), Metrics: prometheus.NewRegistry(), Health: health})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return health, cancel
}

// dial returns the connection of a kubelet to a relay.
func dial(t *testing.T, config relay.Config, socket string) *grpc.ClientConn {
	t.Helper()
	return rpctest.Dial(t, "unix://"+filepath.Join(config.RegistryDir, socket))
}

// The kubelet registers the plugin, prepares a claim and unprepares it.
func TestKubelet(t *testing.T) {
	writer := newWriter("")
	writer.PutClaim("default", "claim", "uid", &instancev1.AllocatedDevice{
		Request: "r", Pool: "default/" + camera, Device: camera, ShareId: new("share"),
	})
	config, health := startService(t, writer)
	relayHealth, _ := run(t, relay.New, relayTo(config))
	conn := dial(t, relayTo(config), "akri.sh-plugin.sock")
	registration, plugin := registrationv1.NewRegistrationClient(conn), drav1.NewDRAPluginClient(conn)
	info, err := registration.GetInfo(t.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Equal(t, "DRAPlugin akri.sh", info.GetType()+" "+info.GetName())
	require.Equal(t, []string{"v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"}, info.GetSupportedVersions())
	require.Empty(t, info.GetEndpoint(), "the kubelet uses the socket of the registration")
	require.Error(t, relayHealth.Ready(t.Context()))
	_, err = registration.NotifyRegistrationStatus(t.Context(), &registrationv1.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	require.NoError(t, relayHealth.Ready(t.Context()))
	require.NoError(t, relayHealth.Live(t.Context()))
	require.Eventually(t, func() bool { return health.Ready(t.Context()) == nil }, time.Minute, 10*time.Millisecond)

	claims := []*drav1.Claim{{Namespace: "default", Name: "claim", Uid: "uid"}, {Namespace: "default", Uid: "malformed"}}
	writer.FailNextReads(status.Error(codes.Unavailable, "no replica"))
	prepared, err := plugin.NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: claims})
	require.NoError(t, err)
	require.Len(t, prepared.GetClaims(), len(claims), "the kubelet wants a result for each claim")
	require.Contains(t, prepared.GetClaims()["malformed"].GetError(), "malformed")
	require.Empty(t, prepared.GetClaims()["uid"].GetError())
	device := prepared.GetClaims()["uid"].GetDevices()[0]
	require.Equal(t, []string{"r"}, device.GetRequestNames())
	require.Equal(t, "default/cameras-8120fe cameras-8120fe share", device.GetPoolName()+" "+device.GetDeviceName()+" "+device.GetShareId())
	require.Equal(t, []string{"akri.sh/claim=uid-r"}, device.GetCdiDeviceIds())
	require.Equal(t, []string{"D:uid:node-a"}, writer.Usage(camera))
	content, err := os.ReadFile(filepath.Join(config.CDIDir, "akri.sh-claim_uid.json"))
	require.NoError(t, err)
	require.Contains(t, string(content), `"URL_8120FE=rtsp://camera"`)

	// The first message of each stream is a change for the kubelet.
	for version, client := range map[string]drahealthv1.DRAResourceHealthClient{
		"v1":       drahealthv1.NewDRAResourceHealthClient(conn),
		"v1alpha1": drahealthv1.V1Alpha1ClientWrapper{Client: drahealthv1alpha1.NewDRAResourceHealthClient(conn)},
	} {
		stream, err := client.NodeWatchResources(t.Context(), &drahealthv1.NodeWatchResourcesRequest{})
		require.NoError(t, err, version)
		for _, health := range []drahealthv1.HealthStatus{drahealthv1.HealthStatus_UNKNOWN, drahealthv1.HealthStatus_HEALTHY} {
			response, err := stream.Recv()
			require.NoError(t, err, version)
			var pools []string
			for _, device := range response.GetDevices() {
				require.Equal(t, health, device.GetHealth())
				require.Equal(t, camera, device.GetDevice().GetDeviceName())
				pools = append(pools, device.GetDevice().GetPoolName())
			}
			require.Equal(t, []string{"default/cameras-8120fe", "default/configuration/cameras", "default/node/node-a"}, pools)
		}
	}

	for range 2 {
		unprepared, err := plugin.NodeUnprepareResources(t.Context(), &drav1.NodeUnprepareResourcesRequest{Claims: claims[:1]})
		require.NoError(t, err)
		require.Empty(t, unprepared.GetClaims()["uid"].GetError())
		require.Equal(t, []string{""}, writer.Usage(camera))
	}
	require.NoFileExists(t, filepath.Join(config.CDIDir, "akri.sh-claim_uid.json"))
}

// A replica of instance-writer without memory refuses the calls. The plugin reaches another one.
func TestFullReplica(t *testing.T) {
	writer := newWriter("")
	writer.PutClaim("default", "claim", "uid", &instancev1.AllocatedDevice{Request: "r", Pool: "default/" + camera, Device: camera})
	config := newConfig(t, writer)
	config.InstanceWriter = "unix://" + filepath.Join(filepath.Dir(config.CDIDir), "w")
	rpctest.ServeReplicas(t, config.InstanceWriter, func(r grpc.ServiceRegistrar) { instancev1.RegisterInstanceServiceServer(r, writer) })
	run(t, drakubeletplugin.New, config)
	run(t, relay.New, relayTo(config))

	plugin := drav1.NewDRAPluginClient(dial(t, relayTo(config), "akri.sh-plugin.sock"))
	prepared, err := plugin.NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{
		Claims: []*drav1.Claim{{Namespace: "default", Name: "claim", Uid: "uid"}},
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Empty(t, prepared.GetClaims()["uid"].GetError())
	require.Equal(t, []string{"D:uid:node-a"}, writer.Usage(camera))
}

// A Pod replaces another one. Both serve the kubelet, and a preparation that waits in the old one
// is finished. The sockets of Pods that were killed are removed.
func TestReplacedPod(t *testing.T) {
	writer := newWriter("node-b")
	writer.PutClaim("default", "claim", "uid", &instancev1.AllocatedDevice{Request: "r", Pool: "default/" + camera, Device: camera})
	config := newConfig(t, writer)
	registry := relayTo(config).RegistryDir
	socket := func(name string) string { return filepath.Join(registry, name) }
	require.NoError(t, os.Mkdir(registry, 0o700))
	stale, others := []string{socket("akri.sh.sock"), socket("akri.sh-killed.sock")}, socket("gpu.example.com.sock")
	for _, path := range append(stale, others) {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		require.NoError(t, err)
		listener.SetUnlinkOnClose(false)
		require.NoError(t, listener.Close())
	}

	config.Pod = "akri/plugin-old"
	_, stopPlugin := run(t, drakubeletplugin.New, config)
	_, stopRelay := run(t, relay.New, relayTo(config))
	plugin := drav1.NewDRAPluginClient(dial(t, relayTo(config), "akri.sh-old.sock"))
	prepared := make(chan *drav1.NodePrepareResourcesResponse, 1)
	go func() {
		response, err := plugin.NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{
			Claims: []*drav1.Claim{{Namespace: "default", Name: "claim", Uid: "uid"}},
		}, grpc.WaitForReady(true))
		assert.NoError(t, err)
		prepared <- response
	}()
	require.Eventually(t, func() bool { return writer.Reads() > 0 }, time.Minute, 10*time.Millisecond)
	for _, path := range stale {
		require.NoFileExists(t, path)
	}
	require.FileExists(t, others)

	config.Pod, config.Socket = "akri/plugin-new", config.Socket+"2"
	run(t, drakubeletplugin.New, config)
	run(t, relay.New, relayTo(config))
	info, err := registrationv1.NewRegistrationClient(dial(t, relayTo(config), "akri.sh-new.sock")).
		GetInfo(t.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Equal(t, "akri.sh", info.GetName())
	require.FileExists(t, socket("akri.sh-old.sock"))

	stopPlugin()
	stopRelay()
	require.Eventually(t, func() bool { _, err := os.Stat(socket("akri.sh-old.sock")); return os.IsNotExist(err) }, time.Minute, 10*time.Millisecond)
	require.Empty(t, prepared)
	writer.PutDevice("camera", camera, "cameras", 1, "")
	require.Empty(t, (<-prepared).GetClaims()["uid"].GetError())
	require.Equal(t, []string{"D:uid:node-a"}, writer.Usage(camera))
}
