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
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/libs/rpctest"
)

// fakeKubelet does what the kubelet does with device plugins: it empties its folder when it starts, dials back who
// registers, and follows the list of devices. It also knows plugins by the names of their resources alone, as the kubelet does: the end of
// one is the end of whoever has the name by then (k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go).
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer
	t      *testing.T
	folder string
	stop   func()

	mu            sync.Mutex
	endpoints     map[string]*endpoint // by resource
	registrations map[string]int
	given         map[string][]string // to pods, by resource; what the checkpoint notes
	slow          time.Duration       // how long it takes to see the end of a plugin
	hasty         int                 // so many registrations end before their devices were asked for
}

// note makes the kubelet know what pods have, and write it down with the next list of devices that it receives.
func (k *fakeKubelet) note(given map[string][]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.given = given
}

// writeCheckpoint is called with the lock held.
func (k *fakeKubelet) writeCheckpoint() {
	entries := []map[string]any{}
	for resource, ids := range k.given {
		entries = append(entries, map[string]any{"PodUID": "p", "ContainerName": "c", "ResourceName": resource, "DeviceIDs": map[string]any{"-1": ids}})
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}, "Checksum": 1})
	if err == nil {
		err = os.WriteFile(filepath.Join(k.folder, "new"), text, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(k.folder, "new"), filepath.Join(k.folder, "kubelet_internal_checkpoint"))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the test is over
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

func startKubelet(t *testing.T, folder string) *fakeKubelet {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(folder, "*.sock"))
	require.NoError(t, err)
	for _, socket := range sockets {
		require.NoError(t, os.RemoveAll(socket))
	}
	k := &fakeKubelet{t: t, folder: folder, endpoints: map[string]*endpoint{}, registrations: map[string]int{}}
	stop := rpctest.ServeAt(t, "unix://"+filepath.Join(folder, "kubelet.sock"), func(r grpc.ServiceRegistrar) { pluginapi.RegisterRegistrationServer(r, k) })
	var once sync.Once
	k.stop = func() { once.Do(func() { stop(); k.hangUp() }) }
	t.Cleanup(k.stop)
	return k
}

func (k *fakeKubelet) hangUp() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.endpoints {
		_ = e.conn.Close()
	}
}

func (k *fakeKubelet) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.folder, request.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
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
	resource := request.GetResourceName()
	if before := k.endpoints[resource]; before != nil {
		e.devices = before.devices
	}
	k.endpoints[resource] = e
	k.registrations[resource]++
	if k.hasty > 0 {
		k.hasty--
		_ = conn.Close()
		return &pluginapi.Empty{}, nil
	}
	go k.follow(resource, e)
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) follow(resource string, e *endpoint) {
	stream, err := e.client.ListAndWatch(context.Background(), &pluginapi.Empty{})
	for err == nil {
		var list *pluginapi.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			k.receive(resource, list)
		}
	}
	k.mu.Lock()
	slow := k.slow
	k.mu.Unlock()
	<-time.After(slow)
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
	if k.given != nil {
		k.writeCheckpoint()
	}
}

func (k *fakeKubelet) disconnect(resource string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.endpoints[resource]
	_ = e.conn.Close()
	e.ended = true
	sick := map[string]string{}
	for id := range e.devices {
		sick[id] = pluginapi.Unhealthy
	}
	e.devices = sick
}

// devices of a resource, or nil before it is known; ended tells whether the plugin ended its stream.
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

// allocate asks for devices of one resource for some containers.
func (k *fakeKubelet) allocate(resource string, containers ...[]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	request := &pluginapi.AllocateRequest{}
	for _, ids := range containers {
		request.ContainerRequests = append(request.ContainerRequests, &pluginapi.ContainerAllocateRequest{DevicesIds: ids})
	}
	response, err := k.client(resource).Allocate(context.Background(), request)
	return response.GetContainerResponses(), err
}

// fakePods is the kubelet's pod-resources service.
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

// set makes the kubelet list our own pod and one that has the devices.
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

func (p *fakePods) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}
