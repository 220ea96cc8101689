package adoption_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/kube/kubetest"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/adoption/upstream"
)

// recordedDevices are the devices of the recording, by node and handler.
var recordedDevices = map[string]map[string]*discoveryv0.Device{
	"node-a": {"onvif": camera, "debugEcho": {Id: "foo0", Properties: map[string]string{"DEBUG_ECHO_DESCRIPTION": "foo0"}}},
	"node-b": {"onvif": camera, "udev": {
		Id: "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0",
		Properties: map[string]string{
			"UDEV_DEVPATH": "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0", "UDEV_DEVNODE": "/dev/video0",
		},
		DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/video0", HostPath: "/dev/video0", Permissions: "rwm"}},
	}},
}

var camera = &discoveryv0.Device{
	Id: "http://192.168.1.23/onvif/device_service-9c5a0e2d",
	Properties: map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": "http://192.168.1.23/onvif/device_service", "ONVIF_DEVICE_IP_ADDRESS": "192.168.1.23",
		"ONVIF_DEVICE_UUID": "9c5a0e2d",
	},
}

// TestStandIns runs the stand-ins for upstream Akri with the Configurations of the recording, and
// with handlers and kubelets that behave as in the recording. The objects must become the recorded
// ones, including the field managers of Configurations and Instances.
func TestStandIns(t *testing.T) {
	recorded := replay(t, startServer(t))
	server := startServer(t)
	c := newCluster(t, server)
	kubelets := map[string]*kubelet{}
	for node, devices := range recordedDevices {
		kubelets[node] = startAgent(t, server.Config(), node, devices)
	}
	run(t, func(ctx context.Context) error {
		controller, err := upstream.NewController(server.Config(), zaptest.NewLogger(t))
		if err != nil {
			return err
		}
		return controller.Run(ctx)
	})

	for _, r := range requests(t) {
		if r.Create["kind"] == "Configuration" {
			c.send(r)
		}
	}
	for key, o := range recorded.all() {
		c.kinds[key] = o.GroupVersionKind()
	}
	for _, r := range requests(t) {
		if r.Create["kind"] == "Pod" {
			c.run(r)
		}
	}
	kubelets["node-b"].allocate(t, "akri.sh/akri-onvif-a7e5b8", "akri-onvif-a7e5b8-0")
	kubelets["node-a"].allocate(t, "akri.sh/akri-onvif-a7e5b8", "akri-onvif-a7e5b8-1")
	response := kubelets["node-b"].allocate(t, "akri.sh/akri-udev", "akri-udev-0")
	require.Equal(t, map[string]string{
		"UDEV_DEVPATH": "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0", "UDEV_DEVNODE": "/dev/video0",
		"UDEV_DEVPATH_33868F": "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0", "UDEV_DEVNODE_33868F": "/dev/video0",
	}, response.GetEnvs())
	require.Equal(t, "rwm", response.GetDevices()[0].GetPermissions())

	want := written(recorded.all())
	// Another Pod had the first id when upstream Akri wrote this slot.
	slots := want["Instance/akri-udev-33868f"]["spec"].(map[string]any)["deviceUsage"].(map[string]any)
	require.Equal(t, map[string]any{"akri-udev-33868f-0": "C:akri-udev-1:node-b"}, slots)
	slots["akri-udev-33868f-0"] = "C:akri-udev-0:node-b"
	// The recording lacks what the agent of node-b wrote to this Configuration.
	echo := want["Configuration/akri-debug-echo"]
	require.Equal(t, []string{"node-a"}, echo["finalizers"])
	echo["finalizers"] = []string{"node-a", "node-b"}
	echo["fields"].(map[string]string)["node-b-fin Apply"] = `{"f:metadata":{"f:finalizers":{"v:\"node-b\"":{}}}}`
	c.eventuallyEqual(want)
	// A second id is offered while a slot is free. One that is reserved cannot be reserved again.
	require.ElementsMatch(t, []string{"akri-udev-0 Healthy", "akri-udev-1 Healthy"}, kubelets["node-b"].offered(t, "akri.sh/akri-udev"))
	require.ElementsMatch(t, []string{"akri-udev-33868f-0 Unhealthy", "akri-udev-33868f-1 Healthy"}, kubelets["node-b"].offered(t, "akri.sh/akri-udev-33868f"))
	_, err := kubelets["node-b"].tryAllocate(t, "akri.sh/akri-udev", "akri-udev-0")
	require.ErrorContains(t, err, "Unable to claim slot")
	// Nodes see each other's slots.
	require.ElementsMatch(t, []string{"akri-onvif-a7e5b8-0 Unhealthy", "akri-onvif-a7e5b8-1 Healthy"}, kubelets["node-a"].offered(t, "akri.sh/akri-onvif-a7e5b8"))
}

func startServer(t *testing.T) *kubetest.Server {
	t.Helper()
	server, err := kubetest.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	return server
}

// run runs a stand-in until the end of the test.
func run(t *testing.T, main func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- main(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
}

// startAgent starts the agent of a node, a handler for each device, and a kubelet.
func startAgent(t *testing.T, config *rest.Config, node string, devices map[string]*discoveryv0.Device) *kubelet {
	t.Helper()
	dir := t.TempDir()
	k := startKubelet(t, dir)
	run(t, func(ctx context.Context) error {
		agent, err := upstream.NewAgent(upstream.AgentConfig{Node: node, HandlersDir: dir, PluginsDir: dir, REST: config, Log: zaptest.NewLogger(t)})
		if err != nil {
			return err
		}
		return agent.Run(ctx)
	})
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "agent-registration.sock"))
		return err == nil
	}, timeout, pollInterval)
	for name, device := range devices {
		list := func(string) ([]*discoveryv0.Device, error) { return []*discoveryv0.Device{device}, nil }
		handler := &upstream.Handler{Name: name, Dir: dir, Shared: name != "udev", List: list, Log: zaptest.NewLogger(t)}
		run(t, handler.Run)
	}
	return k
}

// kubelet is a fake kubelet. It records the device plugins that register.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	dir string

	mu        sync.Mutex
	endpoints map[string]string // by resource
}

func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	k := &kubelet{dir: dir, endpoints: map[string]string{}}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "kubelet.sock"))
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	return k
}

// Register implements the registration API of the kubelet.
func (k *kubelet) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endpoints[request.GetResourceName()] = request.GetEndpoint()
	return &pluginapi.Empty{}, nil
}

// plugin waits for the device plugin of a resource.
func (k *kubelet) plugin(t *testing.T, resource string) pluginapi.DevicePluginClient {
	t.Helper()
	var endpoint string
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		endpoint = k.endpoints[resource]
		return endpoint != ""
	}, timeout, pollInterval, "%s is not registered", resource)
	name, isSocket := strings.CutSuffix(endpoint, ".sock")
	require.True(t, isSocket, endpoint)
	require.Regexp(t, `^`+strings.TrimPrefix(resource, "akri.sh/")+`-\d{10}$`, name)
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return pluginapi.NewDevicePluginClient(conn)
}

func (k *kubelet) allocate(t *testing.T, resource, id string) *pluginapi.ContainerAllocateResponse {
	t.Helper()
	response, err := k.tryAllocate(t, resource, id)
	require.NoError(t, err)
	return response
}

// tryAllocate allocates a device for one container.
func (k *kubelet) tryAllocate(t *testing.T, resource, id string) (*pluginapi.ContainerAllocateResponse, error) {
	t.Helper()
	response, err := k.plugin(t, resource).Allocate(t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{id}}},
	})
	if err != nil {
		return nil, err
	}
	require.Len(t, response.GetContainerResponses(), 1)
	return response.GetContainerResponses()[0], nil
}

// offered returns the devices of a resource with their health.
func (k *kubelet) offered(t *testing.T, resource string) (devices []string) {
	t.Helper()
	stream, err := k.plugin(t, resource).ListAndWatch(t.Context(), &pluginapi.Empty{})
	require.NoError(t, err)
	response, err := stream.Recv()
	require.NoError(t, err)
	for _, device := range response.GetDevices() {
		devices = append(devices, device.GetID()+" "+device.GetHealth())
	}
	return devices
}

// run waits for a recorded Pod and sets its recorded status and node.
func (c *cluster) run(r request) {
	c.Helper()
	key := "Pod/" + object(r.Create).GetName()
	c.eventually(func() bool { return c.get(key) != nil }, key+" is not created")
	pod := c.get(key)
	pod.Object["status"] = r.Status
	_, err := c.resource(pod).UpdateStatus(c.Context(), pod, metav1.UpdateOptions{FieldManager: "kubelet"})
	require.NoError(c, err)
}

func (c *cluster) eventuallyEqual(want map[string]map[string]any) {
	c.Helper()
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		require.Equal(collect, want, written(c.all()))
	}, timeout, pollInterval)
}

// written returns what the writers of the objects decide. It leaves out what the API server
// assigns, the scheduler's choice, and the Instance of the removed node.
func written(all map[string]*unstructured.Unstructured) map[string]map[string]any {
	parts := map[string]map[string]any{}
	for key, o := range all {
		if key == stale {
			continue
		}
		parts[key] = part(o)
	}
	return parts
}

func part(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	spec := o.Object["spec"].(map[string]any)
	for _, field := range []string{"nodeName", "clusterIP", "clusterIPs", "selector"} {
		if field != "selector" || o.GetKind() == "Job" {
			delete(spec, field)
		}
	}
	for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
		unstructured.RemoveNestedField(spec, "template", "metadata", "labels", label)
	}
	if nodes, _, _ := unstructured.NestedStringSlice(spec, "nodes"); nodes != nil {
		slices.Sort(nodes) // the order is that of the first writes
		spec["nodes"] = nodes
	}
	owners := o.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = ""
	}
	finalizers := o.GetFinalizers()
	slices.Sort(finalizers)
	parts := map[string]any{
		"labels": o.GetLabels(), "annotations": o.GetAnnotations(), "owners": owners, "finalizers": finalizers, "spec": spec,
	}
	if kind := o.GetKind(); kind == "Instance" || kind == "Configuration" {
		parts["fields"] = managed(o)
	}
	return parts
}

// uid matches the uid of an owner, which differs in each cluster.
var uid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// managed returns the fields of each field manager.
func managed(o *unstructured.Unstructured) map[string]string {
	fields := map[string]string{}
	for _, entry := range o.GetManagedFields() {
		fields[entry.Manager+" "+string(entry.Operation)] = uid.ReplaceAllString(entry.FieldsV1.GetRawString(), "uid")
	}
	return fields
}
