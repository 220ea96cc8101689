package devicepluginhost_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/libs/admin"
	"akri.sh/libs/node/instancetest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	discoveryv0 "akri.sh/proto/v0"
	devicepluginhost "akri.sh/services/device-plugin-host"
)

const (
	first         = "akri-onvif-8120fe"
	second        = "akri-onvif-a19705"
	configuration = "akri.sh/akri-onvif"

	healthy   = "Healthy"
	unhealthy = "Unhealthy"

	timeout = time.Minute
)

// allocator is the address of a real config-plugin-allocator process.
var allocator string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "allocator")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "config-plugin-allocator")
	build := exec.Command("go", "build", "-o", binary, "./cmd/config-plugin-allocator")
	build.Dir = "../config-plugin-allocator"
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build config-plugin-allocator: %v\n%s", err, out))
	}
	allocator = "unix://" + filepath.Join(dir, "a.sock")
	process := exec.Command(binary, "--socket", allocator, "--admin-address=")
	if err := process.Start(); err != nil {
		panic(err)
	}
	defer func() { _ = process.Process.Kill(); _ = process.Wait() }()
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(goleak.IgnoreTopFunction("os/exec.(*Cmd).watchCtx")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// fixture is a running device-plugin-host with fakes of the services that it calls.
type fixture struct {
	t        *testing.T
	operator *fakeOperator
	writer   *instancetest.Writer
	kubelet  *fakeKubelet
	pods     *fakePods
	config   devicepluginhost.Config
	metrics  *prometheus.Registry
	health   *admin.Health
	// cancelHost cancels the context of the host, and stopHost also waits until the host has
	// stopped.
	cancelHost, stopHost func()
	// stopWriter and startWriter stop and start instance-writer.
	stopWriter, startWriter func()
}

func startFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, operator: &fakeOperator{}, writer: instancetest.New(), pods: &fakePods{}}
	f.pods.set("")
	dir := shortDir(t)
	writer := "unix://" + filepath.Join(dir, "writer.sock")
	f.startWriter = func() {
		f.stopWriter = rpctest.ServeAt(t, writer, func(r grpc.ServiceRegistrar) { instancev1.RegisterInstanceServiceServer(r, f.writer) })
	}
	f.startWriter()
	pods := filepath.Join(dir, "pods.sock")
	rpctest.ServeAt(t, "unix://"+pods, func(r grpc.ServiceRegistrar) { podresourcesv1.RegisterPodResourcesListerServer(r, f.pods) })
	operator := "unix://" + filepath.Join(dir, "operator.sock")
	rpctest.ServeAt(t, operator, func(r grpc.ServiceRegistrar) { discoveryv1.RegisterDeviceInventoryServiceServer(r, f.operator) })
	f.config = devicepluginhost.Config{
		NodeName: "node-a", Pod: "akri/host", KubeletDir: shortDir(t), PodResources: pods,
		DiscoveryOperator: operator,
		InstanceWriter:    writer,
		Allocator:         allocator,
	}
	// The socket of a kubelet that starts later could end a registration, so their number would not
	// be certain.
	f.kubelet = startKubelet(t, f.config.KubeletDir)
	f.startHost()
	return f
}

// shortDir returns a directory whose path leaves enough bytes for the name of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dph") //nolint:usetesting // t.TempDir contains the name of the test
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (f *fixture) startHost() {
	f.metrics, f.health = prometheus.NewRegistry(), &admin.Health{}
	s, err := devicepluginhost.New(f.config, service.Env{Log: zaptest.NewLogger(f.t), Metrics: f.metrics, Health: f.health})
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	f.cancelHost = cancel
	f.stopHost = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(f.t, <-done)
		}
	}
	f.t.Cleanup(f.stopHost)
}

func (f *fixture) eventually(check func(c *assert.CollectT)) {
	f.t.Helper()
	require.EventuallyWithT(f.t, check, timeout, 2*time.Millisecond)
}

// awaitReady waits until the host is ready.
func (f *fixture) awaitReady() {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) { require.NoError(c, f.health.Ready(f.t.Context())) })
}

// awaitDevices waits until the kubelet has exactly these devices of the resource.
func (f *fixture) awaitDevices(resource string, expected map[string]string) {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) {
		devices, ended := f.kubelet.devices(resource)
		require.Equal(c, expected, devices)
		require.False(c, ended)
	})
}

// awaitRemoved waits until the kubelet has received an empty list of the resource and its plugin
// has stopped.
func (f *fixture) awaitRemoved(resource string) {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) {
		devices, ended := f.kubelet.devices(resource)
		require.NotNil(c, devices)
		require.Empty(c, devices)
		require.True(c, ended)
	})
}

func (f *fixture) awaitUsage(instance string, expected ...string) {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) { require.Equal(c, expected, f.writer.Usage(instance)) })
}

// awaitPodLists waits until the Pods were listed that many times more.
func (f *fixture) awaitPodLists(more int) {
	f.t.Helper()
	before := f.pods.listed()
	f.eventually(func(c *assert.CollectT) { require.GreaterOrEqual(c, f.pods.listed(), before+more) })
}

// awaitLostSlots waits until akri_lost_slots_total of the result is 1.
func (f *fixture) awaitLostSlots(result string) {
	f.t.Helper()
	f.eventually(func(c *assert.CollectT) { require.Equal(c, 1.0, f.lostSlots(result)) })
}

// lostSlots returns akri_lost_slots_total of the result.
func (f *fixture) lostSlots(result string) float64 {
	families, err := f.metrics.Gather()
	require.NoError(f.t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "akri_lost_slots_total" && metric.GetLabel()[0].GetValue() == result {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// sockets returns the paths of all device plugin sockets.
func (f *fixture) sockets() []string {
	sockets, err := filepath.Glob(filepath.Join(f.config.KubeletDir, "akri-*.sock"))
	require.NoError(f.t, err)
	return sockets
}

// seeCameras makes the node see both cameras of the Configuration akri-onvif.
func (f *fixture) seeCameras() {
	f.operator.set(cameras(camera(first, "rtsp://first"), camera(second, "rtsp://second")))
}

func cameras(devices ...*discoveryv1.Device) *discoveryv1.ConfigurationDevices {
	return &discoveryv1.ConfigurationDevices{Namespace: "default", Name: "akri-onvif", Complete: true, Devices: devices}
}

func camera(instance, url string) *discoveryv1.Device {
	return &discoveryv1.Device{
		Instance: instance, Id: instance, Shared: true,
		Properties:  map[string]string{"URL": url},
		Mounts:      []*discoveryv0.Mount{{ContainerPath: "/etc/camera", HostPath: "/etc/akri/camera", ReadOnly: true}},
		DeviceNodes: []*discoveryv0.DeviceSpec{{HostPath: "/dev/" + instance, Permissions: "rw"}},
	}
}

func ids(list ...string) []string { return list }

// all returns devices that have the same health.
func all(health string, ids ...string) map[string]string {
	devices := map[string]string{}
	for _, id := range ids {
		devices[id] = health
	}
	return devices
}
