package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
)

// plugin is the device plugin of one resource.
type plugin interface {
	// list returns the devices and a channel that is closed when they change.
	list() ([]*pluginapi.Device, <-chan struct{})
	allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error)
}

// pluginServer serves a plugin to the kubelet. It has no preferred allocation.
type pluginServer struct {
	pluginapi.UnimplementedDevicePluginServer
	plugin
}

// GetDevicePluginOptions implements the device plugin API.
func (pluginServer) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch implements the device plugin API.
func (s pluginServer) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		devices, changed := s.list()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate implements the device plugin API.
func (s pluginServer) Allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	return s.allocate(ctx, request)
}

// register serves a plugin and registers akri.sh/<name> with the kubelet. The name of the socket
// has the time in seconds. A kubelet that restarts removes the socket, and nothing registers again.
func register(ctx context.Context, dir, name string, p plugin) (*grpc.Server, error) {
	endpoint := name + "-" + strconv.FormatInt(time.Now().Unix(), 10) + ".sock"
	listener, err := listen(ctx, filepath.Join(dir, endpoint))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, pluginServer{plugin: p})
	go func() { _ = server.Serve(listener) }() // until Stop

	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		server.Stop()
		return nil, fmt.Errorf("dial kubelet: %w", err)
	}
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: akriv0.ResourceName(name), Options: &pluginapi.DevicePluginOptions{},
	})
	if err := errors.Join(err, conn.Close()); err != nil {
		server.Stop()
		return nil, fmt.Errorf("register %s: %w", name, err)
	}
	return server, nil
}

func listen(ctx context.Context, path string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// instancePlugin offers the slots of an Instance as akri.sh/<instance>.
type instancePlugin struct {
	applier
	namespace, instance string
	content             device
	server              *grpc.Server

	mu     sync.Mutex
	slots  []string
	listed broadcast.Value[[]*pluginapi.Device]
	// onChange updates the plugin of the Configuration.
	onChange func()
}

func newInstancePlugin(a applier, instance *akriv0.Instance, content device) *instancePlugin {
	p := &instancePlugin{
		applier: a, namespace: instance.Namespace, instance: instance.Name, content: content,
		slots: make([]string, instance.Spec.Capacity), onChange: func() {},
	}
	p.update(instance.Spec.DeviceUsage)
	return p
}

// update takes the slots that are in deviceUsage. It does not see slots that left deviceUsage.
func (p *instancePlugin) update(usage map[string]string) {
	p.mu.Lock()
	for slot, holder := range usage {
		if index, err := akriv0.SlotIndex(p.instance, slot); err == nil && index < len(p.slots) {
			p.slots[index] = holder
		}
	}
	p.publish()
	notify := p.onChange
	p.mu.Unlock()
	notify()
}

// publish sends the devices to the kubelet. A slot is healthy if it is free, or if this node holds
// it through this resource.
func (p *instancePlugin) publish() {
	devices := make([]*pluginapi.Device, 0, len(p.slots))
	for index, holder := range p.slots {
		health := pluginapi.Unhealthy
		if holder == "" || holder == p.node {
			health = pluginapi.Healthy
		}
		devices = append(devices, &pluginapi.Device{ID: akriv0.SlotName(p.instance, index), Health: health})
	}
	p.listed.Set(devices)
}

func (p *instancePlugin) list() ([]*pluginapi.Device, <-chan struct{}) { return p.listed.Get() }

// snapshot returns the holders of the slots.
func (p *instancePlugin) snapshot() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.slots)
}

// anySlot asks for the first free slot.
const anySlot = -1

// claim reserves a slot for the holder, also one that the holder has. The slot in
// memory is changed before the write, also if that fails.
func (p *instancePlugin) claim(ctx context.Context, index int, holder string) error {
	p.mu.Lock()
	err := p.write(ctx, index, holder)
	notify := p.onChange
	p.mu.Unlock()
	notify()
	return err
}

func (p *instancePlugin) write(ctx context.Context, index int, holder string) error {
	if index == anySlot {
		index = slices.Index(p.slots, "")
	}
	if index < 0 || index >= len(p.slots) || (p.slots[index] != "" && p.slots[index] != holder) {
		return fmt.Errorf("slot %d of %s is in use", index, p.instance)
	}
	p.slots[index] = holder
	p.publish()
	held := map[string]string{}
	for i, value := range p.slots {
		if value == p.node || isVirtual(value, p.node) {
			held[akriv0.SlotName(p.instance, i)] = value
		}
	}
	return p.applier.slots(ctx, p.namespace, p.instance, held)
}

// isVirtual reports whether the node holds a slot through the resource of the Configuration.
func isVirtual(holder, node string) bool {
	return strings.HasPrefix(holder, "C:") && strings.HasSuffix(holder, ":"+node)
}

// allocate reserves the slots and returns one response for each container.
func (p *instancePlugin) allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		for _, id := range container.GetDevicesIds() {
			index, err := akriv0.SlotIndex(p.instance, id)
			if err != nil {
				return nil, status.Error(codes.Unknown, "Invalid device id")
			}
			if err := p.claim(ctx, index, p.node); err != nil {
				return nil, status.Error(codes.Unknown, "Unable to claim slot")
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, p.response())
	}
	return response, nil
}

// response has each property twice, once with the digest of the Instance in its name.
func (p *instancePlugin) response() *pluginapi.ContainerAllocateResponse {
	r := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{}}
	suffix := "_" + strings.ToUpper(akriv0.InstanceDigest(p.instance))
	for key, value := range p.content.GetProperties() {
		r.Envs[key], r.Envs[key+suffix] = value, value
	}
	for _, mount := range p.content.GetMounts() {
		r.Mounts = append(r.Mounts, &pluginapi.Mount{
			ContainerPath: mount.GetContainerPath(), HostPath: mount.GetHostPath(), ReadOnly: mount.GetReadOnly(),
		})
	}
	for _, spec := range p.content.GetDeviceSpecs() {
		r.Devices = append(r.Devices, &pluginapi.DeviceSpec{
			ContainerPath: spec.GetContainerPath(), HostPath: spec.GetHostPath(), Permissions: spec.GetPermissions(),
		})
	}
	return r
}

// configurationPlugin offers the Instances of a Configuration as akri.sh/<configuration>. Its
// devices are the ids `<configuration>-<n>` that this node has reserved, and one more for each
// Instance with a free slot. All are healthy.
type configurationPlugin struct {
	configuration, node string
	server              *grpc.Server

	mu        sync.Mutex
	instances map[string]*instancePlugin
	ids       map[string]virtualDevice
	listed    broadcast.Value[[]*pluginapi.Device]
}

// virtualDevice is the Instance behind an id.
type virtualDevice struct {
	instance string
	used     bool
}

func newConfigurationPlugin(configuration, node string) *configurationPlugin {
	return &configurationPlugin{
		configuration: configuration, node: node, instances: map[string]*instancePlugin{}, ids: map[string]virtualDevice{},
	}
}

func (p *configurationPlugin) add(plugin *instancePlugin) {
	p.mu.Lock()
	p.instances[plugin.instance] = plugin
	p.mu.Unlock()
	plugin.mu.Lock()
	plugin.onChange = p.refresh
	plugin.mu.Unlock()
	p.refresh()
}

// remove reports whether it removed the last Instance.
func (p *configurationPlugin) remove(instance string) bool {
	p.mu.Lock()
	delete(p.instances, instance)
	empty := len(p.instances) == 0
	p.mu.Unlock()
	p.refresh()
	return empty
}

// refresh assigns the ids. An id keeps its Instance as long as it can.
func (p *configurationPlugin) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := map[string]virtualDevice{}
	free := map[string]bool{}
	for name, instance := range p.instances {
		holders := instance.snapshot()
		free[name] = slices.Contains(holders, "")
		for _, holder := range holders {
			if isVirtual(holder, p.node) {
				id := strings.TrimSuffix(strings.TrimPrefix(holder, "C:"), ":"+p.node)
				ids[id] = virtualDevice{instance: name, used: true}
			}
		}
	}
	for id, former := range p.ids {
		if _, taken := ids[id]; !taken && !former.used && free[former.instance] {
			ids[id] = former
			free[former.instance] = false
		}
	}
	for _, name := range slices.Sorted(maps.Keys(free)) {
		if free[name] {
			ids[p.unused(ids)] = virtualDevice{instance: name}
		}
	}
	p.ids = ids

	devices := make([]*pluginapi.Device, 0, len(ids))
	for id := range ids {
		devices = append(devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	p.listed.Set(devices)
}

// unused returns the id with the lowest unused number.
func (p *configurationPlugin) unused(ids map[string]virtualDevice) string {
	for number := 0; ; number++ {
		id := p.configuration + "-" + strconv.Itoa(number)
		if _, used := ids[id]; !used {
			return id
		}
	}
}

func (p *configurationPlugin) list() ([]*pluginapi.Device, <-chan struct{}) { return p.listed.Get() }

// allocate reserves a slot for each id. It refuses an id that is reserved already, and returns a
// response for each device instead of each container.
func (p *configurationPlugin) allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		for _, id := range container.GetDevicesIds() {
			instance := p.offered(id)
			if instance == nil {
				return nil, status.Error(codes.Unknown, "Unable to claim slot")
			}
			if err := instance.claim(ctx, anySlot, "C:"+id+":"+p.node); err != nil {
				return nil, status.Error(codes.Unknown, "Unavailable slot")
			}
			response.ContainerResponses = append(response.ContainerResponses, instance.response())
		}
	}
	return response, nil
}

// offered returns the Instance of an id that is not reserved, or nil.
func (p *configurationPlugin) offered(id string) *instancePlugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.ids[id]; !found.used {
		return p.instances[found.instance]
	}
	return nil
}
