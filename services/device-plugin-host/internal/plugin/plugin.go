package plugin

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/node"
	"akri.sh/libs/rpc"
)

// SocketPattern matches the names of the plugins' sockets.
const SocketPattern = "akri-????????-*.sock"

const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 30 * time.Second
	// unavailableRetryDelay is the longest retry delay while the kubelet cannot be reached.
	unavailableRetryDelay = time.Second
	// stableAfter is how long a registration must have lasted to reset the retry delay.
	stableAfter = 5 * time.Second
)

// errInvalidated is the reason for a new registration.
var errInvalidated = errors.New("registration became invalid")

// resource provides the devices of one extended resource.
type resource interface {
	// level is instance or configuration.
	level() string
	// list returns the devices in the snapshot.
	list(ctx context.Context, snapshot *node.Snapshot) ([]*pluginapi.Device, error)
	// prefer chooses devices for one container.
	prefer(ctx context.Context, request *pluginapi.ContainerPreferredAllocationRequest) ([]string, error)
	// allocate reserves devices for containers and returns one response for each container. Its
	// errors are gRPC statuses with a message for users.
	allocate(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error)
}

// plugin is the device plugin of one resource.
type plugin struct {
	Config
	name     string // of the extended resource
	resource resource

	list    *deviceList
	devices broadcast.Value[*[]*pluginapi.Device] // nil before the first list
	final   chan struct{}                         // closed when devices does not change any more
	resend  broadcast.Signal                      // the devices are to be sent again without a change
	update  broadcast.Signal                      // the list of devices may have changed
	done    chan struct{}                         // closed when run has returned

	mu      sync.Mutex
	removed bool
	stopped bool
}

func newPlugin(config Config, name string, resource resource) *plugin {
	return &plugin{
		Config: config, name: name, resource: resource, list: newDeviceList(),
		final: make(chan struct{}), resend: broadcast.NewSignal(), update: broadcast.NewSignal(), done: make(chan struct{}),
	}
}

// setExists sets whether the resource exists. If it does not, the plugin sends all devices as
// unhealthy, removes them, and stops. setExists returns false if the plugin has stopped.
func (p *plugin) setExists(exists bool) (running bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	if p.removed == exists {
		p.removed = !exists
		p.update.Notify()
	}
	return true
}

// stopIfEmpty stops the plugin if its resource does not exist and its list is empty.
func (p *plugin) stopIfEmpty(list []*pluginapi.Device) (stopped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = p.removed && len(list) == 0
	return p.stopped
}

func (p *plugin) listDevices(ctx context.Context, snapshot *node.Snapshot) ([]*pluginapi.Device, error) {
	p.mu.Lock()
	removed := p.removed
	p.mu.Unlock()
	if removed {
		return nil, nil
	}
	return p.resource.list(ctx, snapshot)
}

// run serves the resource until ctx ends or the plugin stops. It must be called once.
func (p *plugin) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		defer close(p.final)
		p.updateDevices(ctx)
	}()
	delays := rpc.NewBackOff(minRetryDelay, maxRetryDelay)
	for ctx.Err() == nil {
		started := time.Now()
		err := p.register(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(started) > stableAfter {
			delays.Reset()
		}
		p.waitToRetry(ctx, err, delays.NextBackOff())
	}
	<-p.final
}

// exited reports whether run has returned.
func (p *plugin) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waitToRetry waits at most a second if the kubelet restarted or is unavailable.
func (p *plugin) waitToRetry(ctx context.Context, err error, delay time.Duration) {
	log := p.Log.Warn
	if errors.Is(err, errInvalidated) || status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded {
		delay, log = min(delay, unavailableRetryDelay), p.Log.Debug
	}
	log("device plugin is not registered with the kubelet",
		zap.String("resource", p.name), zap.Error(err), zap.Duration("retry_in", delay))
	select {
	case <-ctx.Done():
	case <-time.After(delay):
	}
}

// register serves a new socket, registers it, and returns when the registration becomes invalid.
func (p *plugin) register(ctx context.Context) error {
	if devices, listed := p.devices.Get(); devices == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-listed:
		}
	}
	socket := newSocketName(p.name)
	registration, end := p.SocketDir.RegistrationContext(ctx, socket)
	defer end()
	listener, err := rpc.Socket{Path: p.SocketDir.Path(socket)}.Bind(registration)
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	s := &session{plugin: p, closed: closed, end: end, allocated: broadcast.NewSignal()}
	defer p.Server.serve(p.SocketDir.Path(socket), listener, s)()
	defer close(closed)
	err = p.Registrar.Register(registration, socket, p.name)
	if registration.Err() == nil {
		p.Metrics.Registered(err)
		if err != nil {
			return fmt.Errorf("register with the kubelet: %w", err)
		}
		p.Log.Info("registered with the kubelet", zap.String("resource", p.name))
		p.Server.setRegistered(s)
	}
	<-registration.Done()
	if ctx.Err() != nil {
		<-p.final // the last list must be sent before the stream ends
		p.Server.waitForAllocations(s)
	}
	return errInvalidated
}

// updateDevices keeps the list of devices up to date until ctx ends or the plugin stops. While
// listing fails, the previous list stays.
func (p *plugin) updateDevices(ctx context.Context) {
	delays := rpc.NewBackOff(minRetryDelay, maxRetryDelay)
	for ctx.Err() == nil {
		snapshot, changed := p.Store.Get()
		devices, err := p.listDevices(ctx, snapshot)
		if err != nil {
			p.waitToList(ctx, err, delays.NextBackOff())
			continue
		}
		delays.Reset()
		list, delay := p.list.update(devices, time.Now())
		if previous, _ := p.devices.Get(); previous == nil || !equal(*previous, list) {
			p.devices.Set(&list)
		}
		if p.stopIfEmpty(list) {
			return
		}
		var due <-chan time.Time
		if delay > 0 {
			due = time.After(delay)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-p.update:
		case <-due:
		case <-p.resend:
			copied := slices.Clone(list)
			p.devices.Set(&copied)
		}
	}
}

// waitToList waits to list the devices again. It returns early when the resource may have been
// removed.
func (p *plugin) waitToList(ctx context.Context, err error, delay time.Duration) {
	p.Log.Debug("listing devices failed", zap.String("resource", p.name), zap.Error(err), zap.Duration("retry_in", delay))
	select {
	case <-ctx.Done():
	case <-p.update:
	case <-time.After(delay):
	}
}

func (p *plugin) allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	started := time.Now()
	containers := make([][]string, 0, len(request.GetContainerRequests()))
	for _, container := range request.GetContainerRequests() {
		containers = append(containers, container.GetDevicesIds())
	}
	responses, err := p.allocateListed(ctx, containers)
	p.Metrics.Allocated(p.resource.level(), err, time.Since(started))
	if err != nil {
		p.Log.Info("allocation refused", zap.String("resource", p.name), zap.Error(err))
		if ctx.Err() == nil { // otherwise the kubelet may have restarted
			p.Slots.AllocationRefused()
		}
		return nil, err
	}
	return &pluginapi.AllocateResponse{ContainerResponses: responses}, nil
}

// allocateListed keeps the devices in the list until the kubelet has processed the response.
func (p *plugin) allocateListed(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	ids := slices.Concat(containers...)
	if err := p.list.beginAllocate(ids); err != nil {
		return nil, err
	}
	defer func() {
		p.list.endAllocate(ids, time.Now())
		p.update.Notify()
	}()
	return p.resource.allocate(ctx, containers)
}

func equal(a, b []*pluginapi.Device) bool {
	return slices.EqualFunc(a, b, func(x, y *pluginapi.Device) bool { return proto.Equal(x, y) })
}

var socketCount atomic.Uint64

// newSocketName returns a name that was not used before, because the kubelet may still be closing
// its connection to the previous socket of the resource.
func newSocketName(resource string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(resource))
	unique := strconv.FormatInt(time.Now().UnixMicro(), 36) + strconv.FormatUint(socketCount.Add(1), 36)
	return fmt.Sprintf("akri-%08x-%s.sock", hash.Sum32(), unique)
}
