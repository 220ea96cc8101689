package drakubeletplugin_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/libs/node/instancetest"
	"akri.sh/libs/node/slots"
	"akri.sh/libs/rpctest"
)

const resource, device = "akri.sh/" + camera, camera + "-0"

// fakeKubelet lists Pods and accepts device plugins. It writes its checkpoint when a plugin sends
// its devices.
type fakeKubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	pluginapi.UnimplementedRegistrationServer
	dir string

	mu        sync.Mutex
	lists     int
	used      []string // devices of containers
	allocated string   // device of the checkpoint file, with the next list of a plugin
	received  []string // devices that plugins sent, with their resources
}

// startKubelet starts a kubelet for the service that uses the directories.
func startKubelet(t *testing.T, dir, podResources string, used ...string) *fakeKubelet {
	t.Helper()
	k := &fakeKubelet{dir: dir, used: used}
	rpctest.ServeAt(t, "unix://"+podResources, func(r grpc.ServiceRegistrar) { podresourcesv1.RegisterPodResourcesListerServer(r, k) })
	rpctest.ServeAt(t, "unix://"+filepath.Join(dir, "kubelet.sock"), func(r grpc.ServiceRegistrar) { pluginapi.RegisterRegistrationServer(r, k) })
	return k
}

// List implements the pod-resources API.
func (k *fakeKubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	pods := []*podresourcesv1.PodResources{{Namespace: "akri", Name: "plugin"}}
	if len(k.used) > 0 {
		pods = append(pods, &podresourcesv1.PodResources{Namespace: "default", Name: "broker", Containers: []*podresourcesv1.ContainerResources{
			{Name: "main", Devices: []*podresourcesv1.ContainerDevices{{ResourceName: resource, DeviceIds: k.used}}},
		}})
	}
	return &podresourcesv1.ListPodResourcesResponse{PodResources: pods}, nil
}

// Register implements the registration of device plugins.
func (k *fakeKubelet) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, request.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	plugin := pluginapi.NewDevicePluginClient(conn)
	if _, err := plugin.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		return nil, err
	}
	go func() {
		defer func() { _ = conn.Close() }()
		stream, err := plugin.ListAndWatch(context.Background(), &pluginapi.Empty{})
		for err == nil {
			var list *pluginapi.ListAndWatchResponse
			if list, err = stream.Recv(); err == nil {
				k.receive(request.GetResourceName(), list)
			}
		}
	}()
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) receive(resource string, list *pluginapi.ListAndWatchResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.received = append(k.received, fmt.Sprint(resource, list.GetDevices()))
	k.writeCheckpoint()
}

// writeCheckpoint is called with mu held.
func (k *fakeKubelet) writeCheckpoint() {
	text := fmt.Sprintf(`{"Data": {"PodDeviceEntries": [{"ResourceName": %q, "DeviceIDs": {"-1": [%q]}}]}}`, resource, k.allocated)
	_ = os.WriteFile(filepath.Join(k.dir, "kubelet_internal_checkpoint"), []byte(text), 0o600)
}

func (k *fakeKubelet) set(used ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = used
}

// awaitLists waits for so many more lists of Pods.
func (k *fakeKubelet) awaitLists(t *testing.T, more int) {
	t.Helper()
	listed := func() int { k.mu.Lock(); defer k.mu.Unlock(); return k.lists }
	before := listed()
	require.Eventually(t, func() bool { return listed() >= before+more }, time.Minute, 10*time.Millisecond)
}

// held reports whether a device plugin holds the slot of the camera.
func held(writer *instancetest.Writer) bool { return writer.Usage(camera)[0] == "node-a" }

// A Pod that got its device from a device plugin keeps its slot until it ends.
func TestSlotOfDevicePluginIsReleased(t *testing.T) {
	t.Parallel()
	writer := newWriter("node-a")
	config, _ := startService(t, writer)
	kubelet := startKubelet(t, config.KubeletDir, config.PodResources, device)
	kubelet.awaitLists(t, 3)
	require.True(t, held(writer))

	kubelet.set()
	require.Eventually(t, func() bool { return !held(writer) }, time.Minute, 10*time.Millisecond)
}

// While device-plugin-host runs on the node it alone releases slots: it has a record of those that
// it granted a moment ago.
func TestDevicePluginHostReleasesItsSlots(t *testing.T) {
	t.Parallel()
	writer := newWriter("node-a")
	config, _ := startService(t, writer)
	kubelet := startKubelet(t, config.KubeletDir, config.PodResources, device)
	kubelet.awaitLists(t, 1)
	unlock, err := slots.Lock(t.Context(), config.KubeletDir, zap.NewNop())
	require.NoError(t, err)
	kubelet.set()
	require.Never(t, func() bool { return !held(writer) }, 3*time.Second, 10*time.Millisecond)
	kubelet.set(device)
	unlock()
	kubelet.awaitLists(t, 2)
	kubelet.set()
	require.Eventually(t, func() bool { return !held(writer) }, time.Minute, 10*time.Millisecond)
}

// The kubelet lists no devices of init containers. Its checkpoint does, and it writes the file only
// when a device plugin sends its devices, which no plugin on the node does.
func TestSlotOfInitContainerIsReleased(t *testing.T) {
	t.Parallel()
	writer := newWriter("node-a")
	config, _ := startService(t, writer)
	kubelet := startKubelet(t, config.KubeletDir, config.PodResources)
	kubelet.mu.Lock()
	kubelet.allocated = device
	kubelet.writeCheckpoint()
	kubelet.allocated = ""
	kubelet.mu.Unlock()
	require.Eventually(t, func() bool { return !held(writer) }, time.Minute, 10*time.Millisecond)
	kubelet.mu.Lock()
	defer kubelet.mu.Unlock()
	require.Equal(t, []string{resource + "[]"}, kubelet.received)
	require.NoFileExists(t, filepath.Join(config.KubeletDir, "akri-checkpoint.sock"))
}
