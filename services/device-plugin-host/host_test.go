package devicepluginhost_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	devicepluginhost "akri.sh/services/device-plugin-host"
)

const (
	first         = "akri-onvif-8120fe"
	second        = "akri-onvif-a19705"
	configuration = "akri.sh/akri-onvif"
	soon          = 5 * time.Second
)

// allocator is the address of a real config-plugin-allocator, a process of its own.
var allocator string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "allocator")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	binary := filepath.Join(folder, "config-plugin-allocator")
	build := exec.Command("go", "build", "-o", binary, "./cmd/config-plugin-allocator")
	build.Dir = "../config-plugin-allocator"
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build config-plugin-allocator: %v\n%s", err, out))
	}
	allocator = "unix://" + filepath.Join(folder, "a.sock")
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

// mesh is a running device-plugin-host and all that it talks to.
type mesh struct {
	t        *testing.T
	operator *fakeOperator
	writer   *fakeWriter
	kubelet  *fakeKubelet
	pods     *fakePods
	config   devicepluginhost.Config
	metrics  *prometheus.Registry
	health   *admin.Health
	// endHost tells the host to stop, and stopHost waits until it did.
	endHost, stopHost func()
	// stopWriter and startWriter take the instance-writer away and bring it back.
	stopWriter, startWriter func()
}

func startMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{t: t, operator: &fakeOperator{}, writer: newWriter(), pods: &fakePods{}}
	m.pods.set("")
	folder := shortDir(t)
	writer := "unix://" + filepath.Join(folder, "writer.sock")
	m.startWriter = func() {
		m.stopWriter = rpctest.ServeAt(t, writer, func(r grpc.ServiceRegistrar) { instancev1.RegisterInstanceServiceServer(r, m.writer) })
	}
	m.startWriter()
	pods := filepath.Join(folder, "pods.sock")
	rpctest.ServeAt(t, "unix://"+pods, func(r grpc.ServiceRegistrar) { podresourcesv1.RegisterPodResourcesListerServer(r, m.pods) })
	operator := "unix://" + filepath.Join(folder, "operator.sock")
	rpctest.ServeAt(t, operator, func(r grpc.ServiceRegistrar) { discoveryv1.RegisterDeviceInventoryServiceServer(r, m.operator) })
	m.config = devicepluginhost.Config{
		NodeName: "node-a", Pod: "akri/host", KubeletDir: shortDir(t), PodResources: pods,
		DiscoveryOperator: operator,
		InstanceWriter:    writer,
		Allocator:         allocator,
	}
	m.startHost()
	m.kubelet = startKubelet(t, m.config.KubeletDir)
	return m
}

// shortDir is a folder whose sockets have a path short enough, whatever the test is called.
func shortDir(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "dph") //nolint:usetesting // t.TempDir has the name of the test in it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func (m *mesh) startHost() {
	m.metrics, m.health = prometheus.NewRegistry(), &admin.Health{}
	s, err := devicepluginhost.New(m.config, service.Env{Log: zaptest.NewLogger(m.t), Metrics: m.metrics, Health: m.health})
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	m.endHost = cancel
	m.stopHost = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(m.t, <-done)
		}
	}
	m.t.Cleanup(m.stopHost)
}

// awaitReady waits until the host says that it is ready.
func (m *mesh) awaitReady() {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		answer := httptest.NewRecorder()
		admin.Handler(m.health, m.metrics).ServeHTTP(answer, httptest.NewRequestWithContext(m.t.Context(), http.MethodGet, "/readyz", nil))
		require.Equal(c, http.StatusOK, answer.Code)
	}, soon, 2*time.Millisecond)
}

// seesCameras makes the node see both cameras of the Configuration akri-onvif.
func (m *mesh) seesCameras() {
	m.operator.set(cameras(camera(first, "rtsp://first"), camera(second, "rtsp://second")))
}

func cameras(devices ...*discoveryv1.Device) *discoveryv1.ConfigurationDevices {
	return &discoveryv1.ConfigurationDevices{Namespace: "default", Name: "akri-onvif", Complete: true, Devices: devices}
}

func camera(instance, url string) *discoveryv1.Device {
	return &discoveryv1.Device{
		Instance: instance, Id: url, Shared: true,
		Properties:  map[string]string{"URL": url},
		Mounts:      []*discoveryv1.Mount{{ContainerPath: "/etc/camera", HostPath: "/etc/akri/camera", ReadOnly: true}},
		DeviceNodes: []*discoveryv1.DeviceNode{{HostPath: "/dev/" + instance, Permissions: "rw"}},
	}
}

const (
	healthy   = "Healthy"
	unhealthy = "Unhealthy"
)

// awaitDevices waits until the kubelet knows exactly these devices of the resource.
func (m *mesh) awaitDevices(resource string, want map[string]string) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		devices, ended := m.kubelet.devices(resource)
		require.Equal(c, want, devices)
		require.False(c, ended)
	}, soon, 2*time.Millisecond)
}

func (m *mesh) awaitUsage(instance string, want ...string) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) { require.Equal(c, want, m.writer.usage(instance)) }, soon, 2*time.Millisecond)
}

func ids(list ...string) []string { return list }

func all(health string, ids ...string) map[string]string {
	devices := map[string]string{}
	for _, id := range ids {
		devices[id] = health
	}
	return devices
}
