package handover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/libs/rpctest"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const (
	nodeName = "node-a"
	// callTimeout bounds a call of the kubelet for a claim.
	callTimeout = 45 * time.Second
	pollDelay   = 10 * time.Millisecond
)

// kubelet is a fake kubelet: it admits Pods with devices of device plugins, lists them, registers
// the DRA driver, and prepares and unprepares claims of Pods. Like the kubelet, it ends a Pod whose
// claim it has sent to the driver only after the driver has unprepared the claim.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresourcesv1.UnimplementedPodResourcesListerServer

	dir, registry string

	admission sync.Mutex // Pods are admitted one after the other

	mu        sync.Mutex
	endpoints map[string]*endpoint // by resource
	pods      map[string]*pod      // by name
	lists     int                  // of Pods
	drivers   int                  // registrations of the driver
	driver    *driver              // nil: not registered
	faults    []string             // broken invariants
}

// endpoint is a device plugin.
type endpoint struct {
	client  pluginapi.DevicePluginClient
	devices map[string]string // id → health
	ended   bool
}

// driver is a registered DRA driver.
type driver struct {
	socket os.FileInfo
	conn   *grpc.ClientConn
}

// pod is a Pod with a device of a device plugin or with a claim.
type pod struct {
	name         string
	resource, id string // of a device plugin
	claim        *drav1.Claim
	running      bool
	end          context.CancelFunc
}

func startKubelet(t *testing.T, dir, registry, podResources string) *kubelet {
	t.Helper()
	k := &kubelet{dir: dir, registry: registry, endpoints: map[string]*endpoint{}, pods: map[string]*pod{}}
	k.writeCheckpoint()
	rpctest.ServeAt(t, "unix://"+filepath.Join(dir, "kubelet.sock"), func(r grpc.ServiceRegistrar) { pluginapi.RegisterRegistrationServer(r, k) })
	rpctest.ServeAt(t, "unix://"+podResources, func(r grpc.ServiceRegistrar) { podresourcesv1.RegisterPodResourcesListerServer(r, k) })
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	following.Go(func() { k.followDriver(ctx) })
	t.Cleanup(func() { cancel(); following.Wait() })
	return k
}

// locked calls f with mu held.
func (k *kubelet) locked(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// fault records a broken invariant. It is called with mu held.
func (k *kubelet) fault(format string, arguments ...any) {
	k.faults = append(k.faults, fmt.Sprintf(format, arguments...))
}

// Register implements the registration of device plugins. The kubelet identifies a plugin by its
// resource, so that two plugins of one resource must not live at once.
func (k *kubelet) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, request.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	e := &endpoint{client: pluginapi.NewDevicePluginClient(conn), devices: map[string]string{}}
	if _, err := e.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	k.locked(func() {
		if previous := k.endpoints[request.GetResourceName()]; previous != nil && !previous.ended {
			k.fault("%s registered for %s while another plugin lives", request.GetEndpoint(), request.GetResourceName())
		}
		k.endpoints[request.GetResourceName()] = e
	})
	go func() {
		stream, err := e.client.ListAndWatch(context.Background(), &pluginapi.Empty{})
		for err == nil {
			var list *pluginapi.ListAndWatchResponse
			if list, err = stream.Recv(); err == nil {
				k.locked(func() { k.receive(e, list) })
			}
		}
		k.locked(func() { e.ended = true })
		_ = conn.Close()
	}()
	return &pluginapi.Empty{}, nil
}

// receive is called with mu held.
func (k *kubelet) receive(e *endpoint, list *pluginapi.ListAndWatchResponse) {
	e.devices = map[string]string{}
	for _, device := range list.GetDevices() {
		e.devices[device.GetID()] = device.GetHealth()
	}
	k.writeCheckpoint()
}

// writeCheckpoint is called with mu held.
func (k *kubelet) writeCheckpoint() {
	entries := []map[string]any{}
	for _, p := range k.pods {
		if p.running && p.claim == nil {
			entries = append(entries, map[string]any{"ResourceName": p.resource, "DeviceIDs": map[string]any{"-1": []string{p.id}}})
		}
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}})
	path := filepath.Join(k.dir, "kubelet_internal_checkpoint")
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the test has removed the directory
		k.fault("write the checkpoint: %v", err)
	}
}

// List implements the pod-resources API.
func (k *kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	pods := []*podresourcesv1.PodResources{{Namespace: "akri", Name: "node"}}
	for name, p := range k.pods {
		if p.running && p.claim == nil {
			pods = append(pods, &podresourcesv1.PodResources{Namespace: "default", Name: name, Containers: []*podresourcesv1.ContainerResources{
				{Name: "main", Devices: []*podresourcesv1.ContainerDevices{{ResourceName: p.resource, DeviceIds: []string{p.id}}}},
			}})
		}
	}
	return &podresourcesv1.ListPodResourcesResponse{PodResources: pods}, nil
}

// offers returns the healthy devices of device plugins that no Pod has, as resource and id.
func (k *kubelet) offers() [][2]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var free [][2]string
	for _, resource := range slices.Sorted(maps.Keys(k.endpoints)) {
		e := k.endpoints[resource]
		for _, id := range slices.Sorted(maps.Keys(e.devices)) {
			used := func(p *pod) bool { return p.resource == resource && p.id == id }
			if !e.ended && e.devices[id] == pluginapi.Healthy && !slices.ContainsFunc(slices.Collect(maps.Values(k.pods)), used) {
				free = append(free, [2]string{resource, id})
			}
		}
	}
	return free
}

// admit starts a Pod with a device of a device plugin, if there is one. It returns nil if the Pod
// is refused.
func (k *kubelet) admit(name string, random *rand.Rand) *pod {
	k.admission.Lock()
	defer k.admission.Unlock()
	offers := k.offers()
	if len(offers) == 0 {
		return nil
	}
	offer := offers[random.IntN(len(offers))]
	p := &pod{name: name, resource: offer[0], id: offer[1]}
	p.end = func() { k.locked(func() { delete(k.pods, name) }) }
	var client pluginapi.DevicePluginClient
	k.locked(func() { client = k.endpoints[p.resource].client })
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := client.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{p.id}}},
	})
	if err != nil {
		return nil
	}
	k.locked(func() {
		p.running = true
		k.pods[name] = p
		k.writeCheckpoint()
	})
	return p
}

// startClaimed starts a Pod with a claim. The function that it returns waits until the Pod has
// ended.
func (k *kubelet) startClaimed(claim *drav1.Claim) (p *pod, await func()) {
	ctx, end := context.WithCancel(context.Background())
	p = &pod{name: claim.GetName(), claim: claim, end: end}
	k.locked(func() { k.pods[p.name] = p })
	var group sync.WaitGroup
	group.Go(func() {
		sent := false
		k.repeat(ctx, func(ctx context.Context, client drav1.DRAPluginClient) bool {
			sent = true
			response, err := client.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{Claims: []*drav1.Claim{claim}})
			prepared := err == nil && response.GetClaims()[claim.GetUid()].GetError() == ""
			k.locked(func() { p.running = prepared && ctx.Err() == nil })
			return prepared
		})
		<-ctx.Done()
		k.locked(func() { p.running = false })
		unprepare := func(ctx context.Context, client drav1.DRAPluginClient) bool {
			response, err := client.NodeUnprepareResources(ctx, &drav1.NodeUnprepareResourcesRequest{Claims: []*drav1.Claim{claim}})
			result := response.GetClaims()[claim.GetUid()]
			return err == nil && result != nil && result.GetError() == ""
		}
		if sent {
			k.repeat(context.Background(), unprepare)
		}
		k.locked(func() { delete(k.pods, p.name) })
	})
	return p, group.Wait
}

// repeat calls the registered driver until the call succeeds or ctx ends.
func (k *kubelet) repeat(ctx context.Context, call func(context.Context, drav1.DRAPluginClient) bool) {
	for ctx.Err() == nil {
		var current *driver
		k.locked(func() { current = k.driver })
		if current != nil {
			attempt, cancel := context.WithTimeout(ctx, callTimeout)
			done := call(attempt, drav1.NewDRAPluginClient(current.conn))
			cancel()
			if done {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollDelay):
		}
	}
}

// followDriver registers each driver that creates a socket in the registry, until ctx ends.
func (k *kubelet) followDriver(ctx context.Context) {
	for ctx.Err() == nil {
		k.findDriver(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pollDelay):
		}
	}
	k.setDriver(nil)
}

func (k *kubelet) findDriver(ctx context.Context) {
	sockets, _ := filepath.Glob(filepath.Join(k.registry, "*.sock"))
	if len(sockets) == 0 {
		k.setDriver(nil)
		return
	}
	socket, err := os.Stat(sockets[0])
	var current *driver
	k.locked(func() { current = k.driver })
	same := func(a, b os.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }
	if err != nil || current != nil && same(current.socket, socket) {
		return
	}
	next := &driver{socket: socket}
	if next.conn, err = grpc.NewClient("unix://"+sockets[0], grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client := registrationv1.NewRegistrationClient(next.conn)
	info, err := client.GetInfo(ctx, &registrationv1.InfoRequest{})
	if err == nil && info.GetName() == "akri.sh" {
		_, err = client.NotifyRegistrationStatus(ctx, &registrationv1.RegistrationStatus{PluginRegistered: true})
	}
	if err != nil {
		_ = next.conn.Close()
		return
	}
	k.setDriver(next)
}

func (k *kubelet) setDriver(next *driver) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.driver != nil {
		_ = k.driver.conn.Close()
	}
	if k.driver = next; next != nil {
		k.drivers++
	}
}

// check records running Pods whose slot is not reserved for them. instance-writer calls it with
// each change.
func (k *kubelet) check(instances []*instancev1.Instance, _ uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		holds := func(i *instancev1.Instance) bool {
			return slices.ContainsFunc(i.GetSlots(), func(slot *instancev1.Slot) bool { return p.holds(i, slot) })
		}
		if p.running && !slices.ContainsFunc(instances, holds) {
			k.fault("running Pod %s (%s %s) has no slot in %v", p.name, p.resource, p.id, instances)
		}
	}
}

// holds reports whether the slot of the Instance is that of the Pod.
func (p *pod) holds(i *instancev1.Instance, slot *instancev1.Slot) bool {
	holder := slot.GetHolder()
	switch {
	case p.claim != nil:
		return slot.GetClaim().GetUid() == p.claim.GetUid() && slot.GetClaim().GetNode() == nodeName
	case p.resource == "akri.sh/"+i.GetName():
		return holder.GetNode() == nodeName && holder.VirtualId == nil && strings.HasSuffix(p.id, fmt.Sprintf("-%d", slot.GetIndex()))
	default:
		return holder.GetNode() == nodeName && holder.VirtualId != nil && holder.GetVirtualId() == p.id &&
			p.resource == "akri.sh/"+i.GetConfiguration()
	}
}
