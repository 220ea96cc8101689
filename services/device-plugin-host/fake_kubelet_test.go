package devicepluginhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/libs/rpctest"
)

// fakeKubelet implements the kubelet's side of the device plugin API: it empties its directory when
// it starts, dials plugins that register, and receives their devices. Like the kubelet, it
// identifies plugins by resource name only: the end of a plugin ends the plugin that has the name
// at that time (k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go).
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer
	t    *testing.T
	dir  string
	stop func()

	mu            sync.Mutex
	endpoints     map[string]*endpoint // by resource
	registrations map[string]int
	disconnects   map[string]int      // processed ends of plugins, by resource
	allocated     map[string][]string // devices in the checkpoint, by resource; nil: there is no checkpoint
	// disconnectDelay is the time between the end of a plugin and its processing.
	disconnectDelay time.Duration
	// processDelay is the time between the end of the connection to a plugin and its processing.
	processDelay time.Duration
	// hangUps is the number of registrations after which the kubelet disconnects without requesting
	// the devices.
	hangUps int
	// stopped makes registrations fail that are in progress when the kubelet stops.
	stopped bool
}

// setAllocated sets the allocated devices, which are written to the checkpoint with the next device
// list of a plugin.
func (k *fakeKubelet) setAllocated(allocated map[string][]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.allocated = allocated
}

// writeCheckpoint is called with mu held.
func (k *fakeKubelet) writeCheckpoint() {
	entries := []map[string]any{}
	for resource, ids := range k.allocated {
		entries = append(entries, map[string]any{
			"PodUID": "p", "ContainerName": "c", "ResourceName": resource, "DeviceIDs": map[string]any{"-1": ids},
		})
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}, "Checksum": 1})
	if err == nil {
		err = os.WriteFile(filepath.Join(k.dir, "new"), text, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(k.dir, "new"), filepath.Join(k.dir, "kubelet_internal_checkpoint"))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the test has removed the directory
		k.t.Error(err)
	}
}

type endpoint struct {
	client  pluginapi.DevicePluginClient
	conn    *grpc.ClientConn
	devices map[string]string // id → health
	lists   int
	ended   bool
}

func startKubelet(t *testing.T, dir string) *fakeKubelet {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(dir, "*.sock"))
	require.NoError(t, err)
	for _, socket := range sockets {
		require.NoError(t, os.RemoveAll(socket))
	}
	k := &fakeKubelet{
		t: t, dir: dir, endpoints: map[string]*endpoint{}, registrations: map[string]int{}, disconnects: map[string]int{},
	}
	stop := rpctest.ServeAt(t, "unix://"+filepath.Join(dir, "kubelet.sock"), func(r grpc.ServiceRegistrar) { pluginapi.RegisterRegistrationServer(r, k) })
	var once sync.Once
	k.stop = func() {
		once.Do(func() {
			stop()
			k.setStopped()
			k.closeConnections()
		})
	}
	t.Cleanup(k.stop)
	return k
}

func (k *fakeKubelet) setStopped() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
}

func (k *fakeKubelet) closeConnections() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.endpoints {
		_ = e.conn.Close()
	}
}

func (k *fakeKubelet) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, request.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	e := &endpoint{client: pluginapi.NewDevicePluginClient(conn), conn: conn}
	if _, err := e.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		_ = conn.Close()
		return nil, status.Error(codes.Unavailable, "the kubelet has stopped")
	}
	resource := request.GetResourceName()
	if previous := k.endpoints[resource]; previous != nil {
		e.devices = previous.devices
	}
	k.endpoints[resource] = e
	k.registrations[resource]++
	if k.hangUps > 0 {
		k.hangUps--
		_ = conn.Close()
		return &pluginapi.Empty{}, nil
	}
	go k.watch(resource, e)
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) watch(resource string, e *endpoint) {
	stream, err := e.client.ListAndWatch(context.Background(), &pluginapi.Empty{})
	for err == nil {
		var list *pluginapi.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			k.receive(resource, list)
		}
	}
	k.mu.Lock()
	delay, processDelay := k.disconnectDelay, k.processDelay
	k.mu.Unlock()
	<-time.After(delay)
	_ = e.conn.Close()
	<-time.After(processDelay)
	k.disconnect(resource)
}

func (k *fakeKubelet) receive(resource string, list *pluginapi.ListAndWatchResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.endpoints[resource]
	e.lists++
	e.devices = map[string]string{}
	for _, device := range list.GetDevices() {
		e.devices[device.GetID()] = device.GetHealth()
	}
	if k.allocated != nil {
		k.writeCheckpoint()
	}
}

// disconnect takes the end of any plugin of the resource for the end of the current one, as the
// kubelet does.
func (k *fakeKubelet) disconnect(resource string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.endpoints[resource]
	_ = e.conn.Close()
	e.ended = true
	k.disconnects[resource]++
	devices := map[string]string{}
	for id := range e.devices {
		devices[id] = pluginapi.Unhealthy
	}
	e.devices = devices
}

func (k *fakeKubelet) disconnected(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.disconnects[resource]
}

// devices returns the devices of a resource, or nil if it is not registered, and whether its plugin
// has ended.
func (k *fakeKubelet) devices(resource string) (devices map[string]string, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.endpoints[resource]; e != nil {
		return e.devices, e.ended
	}
	return nil, false
}

func (k *fakeKubelet) lists(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.endpoints[resource].lists
}

func (k *fakeKubelet) registered(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registrations[resource]
}

func (k *fakeKubelet) client(resource string) pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Contains(k.t, k.endpoints, resource)
	return k.endpoints[resource].client
}

// allocate allocates devices of one resource to containers.
func (k *fakeKubelet) allocate(resource string, containers ...[]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	request := &pluginapi.AllocateRequest{}
	for _, ids := range containers {
		request.ContainerRequests = append(request.ContainerRequests, &pluginapi.ContainerAllocateRequest{DevicesIds: ids})
	}
	response, err := k.client(resource).Allocate(context.Background(), request)
	return response.GetContainerResponses(), err
}

// fakePods is the pod-resources service of the kubelet.
type fakePods struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	mu    sync.Mutex
	pods  []*podresourcesv1.PodResources
	err   error
	lists int
}

func (p *fakePods) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lists++
	return &podresourcesv1.ListPodResourcesResponse{PodResources: p.pods}, p.err
}

// set sets the Pods: the Pod of device-plugin-host, and a Pod with the devices if there are any.
func (p *fakePods) set(resource string, ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods = []*podresourcesv1.PodResources{{Namespace: "akri", Name: "host"}}
	if len(ids) > 0 {
		p.pods = append(p.pods, &podresourcesv1.PodResources{Namespace: "default", Name: "broker", Containers: []*podresourcesv1.ContainerResources{
			{Name: "main", Devices: []*podresourcesv1.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}},
		}})
	}
}

func (p *fakePods) listed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}
