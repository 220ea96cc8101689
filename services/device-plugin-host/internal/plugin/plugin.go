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

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	"akri.sh/services/device-plugin-host/internal/kubelet"
	"akri.sh/services/device-plugin-host/internal/node"
	"akri.sh/services/device-plugin-host/internal/trouble"
)

// SocketPattern matches the names of our sockets.
const SocketPattern = "akri-????????-*.sock"

const (
	// longest is the longest pause between attempts to serve or to register.
	longest = 30 * time.Second
	// stable is how long an attempt must have lasted for the pauses to start small again.
	stable = 5 * time.Second
)

// errVoid ends a registration that is to be made anew.
var errVoid = errors.New("the registration is void")

// Resource is what a plugin offers.
type Resource interface {
	// List returns the devices as they are by the view.
	List(ctx context.Context, view *node.View) ([]*pluginapi.Device, error)
	// Prefer chooses devices for one container.
	Prefer(ctx context.Context, request *pluginapi.ContainerPreferredAllocationRequest) ([]string, error)
	// Allocate gives devices to containers and returns what each of them receives. Its errors are gRPC statuses with a
	// message for users.
	Allocate(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error)
}

// Observer is told what plugins do.
type Observer interface {
	Allocated(level string, err error, took time.Duration)
	Registered(err error)
}

// Host is what all plugins share.
type Host struct {
	Server    *Server
	Folder    *kubelet.Folder
	Registrar *kubelet.Registrar
	Store     *node.Store
	Observer  Observer
	Log       *zap.Logger
	// Registering is what all registrations have in common.
	Registering *trouble.Trouble
}

// Plugin offers one resource.
type Plugin struct {
	Host
	Resource Resource
	// Name is that of the extended resource.
	Name string
	// Level is `instance` or `configuration`.
	Level string

	devices   broadcast.Value[*[]*pluginapi.Device] // nil until they were listed first
	shown     *shown
	refreshed chan struct{}    // closes when devices do not change any more
	resend    broadcast.Signal // asks for the devices to be sent as if they had changed
	look      broadcast.Signal // asks for a look at what is to be shown

	mu       sync.Mutex
	unwanted bool
	left     bool
}

// New returns a plugin; Run offers its resource.
func New(host Host, name, level string, resource Resource) *Plugin {
	return &Plugin{
		Host: host, Resource: resource, Name: name, Level: level, shown: newShown(),
		refreshed: make(chan struct{}), resend: broadcast.NewSignal(), look: broadcast.NewSignal(),
	}
}

// Want says whether there is such a resource at the moment. One that there is not has no devices, and its plugin leaves when the
// kubelet has had time to see that. It returns false when the plugin has left.
func (p *Plugin) Want(wanted bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return false
	}
	if p.unwanted == wanted {
		p.unwanted = !wanted
		p.look.Notify()
	}
	return true
}

// leave tells whether the plugin leaves, because nothing is shown and nothing wanted.
func (p *Plugin) leave(devices []*pluginapi.Device) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = p.unwanted && len(devices) == 0
	return p.left
}

// list returns the devices that there are.
func (p *Plugin) list(ctx context.Context, view *node.View) ([]*pluginapi.Device, error) {
	p.mu.Lock()
	unwanted := p.unwanted
	p.mu.Unlock()
	if unwanted {
		return nil, nil
	}
	return p.Resource.List(ctx, view)
}

// Run offers the resource until ctx ends or the plugin leaves. It is called once.
func (p *Plugin) Run(ctx context.Context) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	go func() {
		defer leave()
		defer close(p.refreshed)
		p.refresh(ctx)
	}()
	wait := newWait()
	for ctx.Err() == nil {
		began := time.Now()
		err := p.runOnce(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > stable {
			wait.Reset()
		}
		p.pause(ctx, err, wait.NextBackOff())
	}
	<-p.refreshed
}

// pause is short while the kubelet comes and goes, and grows when it refuses.
func (p *Plugin) pause(ctx context.Context, err error, next time.Duration) {
	log := p.Log.Warn
	if errors.Is(err, errVoid) || status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded {
		next, log = min(next, time.Second), p.Log.Debug
	}
	log("the kubelet does not have the resource", zap.String("resource", p.Name), zap.Error(err), zap.Duration("retry_in", next))
	sleep(ctx, next)
}

// runOnce serves, registers, and waits until the registration is void.
func (p *Plugin) runOnce(ctx context.Context) error {
	if !p.awaitDevices(ctx) {
		return ctx.Err()
	}
	name := nextSocket(p.Name)
	life, end := p.Folder.Session(ctx, name)
	defer end()
	listener, err := rpc.ListenUnix(life, p.Folder.Path(name), 0o600)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	own := &session{plugin: p, over: over, end: end, answered: broadcast.NewSignal()}
	detach := p.Server.attach(p.Folder.Path(name), listener, own)
	defer detach()
	defer close(over)
	err = p.Registrar.Register(life, name, p.Name)
	if life.Err() == nil {
		p.Observer.Registered(err)
		p.Registering.Note(p.Log, "the kubelet does not take resources: is --kubelet-dir its folder, and may it call this service back there?", err)
		if err != nil {
			return fmt.Errorf("register: %w", err)
		}
		p.Log.Info("the kubelet has the resource", zap.String("resource", p.Name))
		p.Server.confirm(own)
	}
	<-life.Done()
	if ctx.Err() != nil {
		<-p.refreshed // the kubelet hears the last word before the stream ends
		p.Server.awaitAnswered(own)
	}
	return errVoid
}

func (p *Plugin) awaitDevices(ctx context.Context) bool {
	for {
		devices, changed := p.devices.Get()
		if devices != nil {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// refresh keeps the list of devices up to date until ctx ends or the plugin leaves. When it cannot be made, the last one
// stays.
func (p *Plugin) refresh(ctx context.Context) {
	wait := newWait()
	for ctx.Err() == nil {
		view, changed := p.Store.Get()
		devices, err := p.list(ctx, view)
		if err != nil {
			pause := wait.NextBackOff()
			p.Log.Debug("list devices", zap.String("resource", p.Name), zap.Error(err), zap.Duration("retry_in", pause))
			select {
			case <-ctx.Done():
			case <-p.look: // it may not be wanted any more, which nobody needs to be asked about
			case <-time.After(pause):
			}
			continue
		}
		wait.Reset()
		show, again := p.shown.update(devices, time.Now())
		if before, _ := p.devices.Get(); before == nil || !same(*before, show) {
			p.devices.Set(&show)
		}
		if p.leave(show) {
			return
		}
		var later <-chan time.Time
		if again > 0 {
			later = time.After(again)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-p.look:
		case <-later:
		case <-p.resend:
			copied := slices.Clone(show)
			p.devices.Set(&copied)
		}
	}
}

// watch sends the devices whenever they were set anew.
func (s *session) watch(stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	var sent *[]*pluginapi.Device
	for {
		devices, changed := s.plugin.devices.Get()
		if sent != devices {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: *devices}); err != nil {
				return err
			}
			sent = devices
		}
		select {
		case <-changed:
		case <-s.over:
			return s.last(stream, *sent)
		case <-stream.Context().Done():
			// The kubelet left: it lost track of this plugin, or ended. It does not always close its connection then.
			s.end()
			return nil
		}
	}
}

// last sends what changed at the very end.
func (s *session) last(stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse], sent []*pluginapi.Device) error {
	devices, _ := s.plugin.devices.Get()
	if same(sent, *devices) {
		return nil
	}
	return stream.Send(&pluginapi.ListAndWatchResponse{Devices: *devices})
}

func (p *Plugin) allocate(ctx context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	began := time.Now()
	containers := make([][]string, 0, len(request.GetContainerRequests()))
	for _, container := range request.GetContainerRequests() {
		containers = append(containers, container.GetDevicesIds())
	}
	responses, err := p.grant(ctx, containers)
	p.Observer.Allocated(p.Level, err, time.Since(began))
	if err != nil {
		p.Log.Info("refused to allocate", zap.String("resource", p.Name), zap.Error(err))
		return nil, err
	}
	return &pluginapi.AllocateResponse{ContainerResponses: responses}, nil
}

// grant keeps what is allocated in the kubelet's list until the kubelet has dealt with the answer.
func (p *Plugin) grant(ctx context.Context, containers [][]string) ([]*pluginapi.ContainerAllocateResponse, error) {
	ids := slices.Concat(containers...)
	if err := p.shown.hold(ids); err != nil {
		return nil, err
	}
	defer func() {
		p.shown.release(ids, time.Now())
		p.look.Notify()
	}()
	return p.Resource.Allocate(ctx, containers)
}

func same(a, b []*pluginapi.Device) bool {
	return slices.EqualFunc(a, b, func(x, y *pluginapi.Device) bool { return proto.Equal(x, y) })
}

var sockets atomic.Uint64

// nextSocket is a name that no socket had before: the kubelet may still be busy with the former one.
func nextSocket(resource string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(resource))
	unique := strconv.FormatInt(time.Now().UnixMicro(), 36) + strconv.FormatUint(sockets.Add(1), 36)
	return fmt.Sprintf("akri-%08x-%s.sock", hash.Sum32(), unique)
}

func newWait() *backoff.ExponentialBackOff {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, longest
	return wait
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
