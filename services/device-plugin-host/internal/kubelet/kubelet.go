// Package kubelet is the client side of the kubelet: it registers device plugins and detects
// restarts of the kubelet.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/failurelog"
	"akri.sh/libs/rpc"
)

const (
	socketName = "kubelet.sock"
	// registerTimeout includes the call with which the kubelet dials the plugin before it answers.
	registerTimeout = 10 * time.Second
	// quietPeriod combines the events of one kubelet restart, which removes all sockets and creates
	// its own.
	quietPeriod = 20 * time.Millisecond
	// rewatchInterval is the delay before a directory that does not exist is watched again.
	rewatchInterval = 200 * time.Millisecond
)

// Options are the device plugin options of all plugins.
var Options = &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}

// Registrar registers device plugins with the kubelet.
type Registrar struct {
	client   pluginapi.RegistrationClient
	failures *failurelog.Log
}

// NewRegistrar returns a Registrar for a connection to the kubelet's socket.
func NewRegistrar(conn grpc.ClientConnInterface, log *zap.Logger) *Registrar {
	return &Registrar{
		client: pluginapi.NewRegistrationClient(conn),
		failures: failurelog.New(log,
			"registering with the kubelet keeps failing; check --kubelet-dir and that the kubelet can connect to sockets in it",
			"registering with the kubelet works again"),
	}
}

// Register registers the named socket as the device plugin of the resource. It waits up to 10 s for
// the kubelet.
func (r *Registrar) Register(ctx context.Context, socket, resource string) error {
	callCtx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err := r.client.Register(callCtx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: resource, Options: Options,
	}, grpc.WaitForReady(true))
	if ctx.Err() == nil {
		r.failures.Record(err)
	}
	return err
}

// SocketDir is the directory of the sockets of the kubelet and its device plugins. The kubelet
// empties it when it starts.
type SocketDir struct {
	path string
	log  *zap.Logger

	mu            sync.Mutex
	registrations map[string]context.CancelFunc // by socket name
}

// NewSocketDir returns the directory at path. It does not access it.
func NewSocketDir(path string, log *zap.Logger) *SocketDir {
	return &SocketDir{path: path, log: log, registrations: map[string]context.CancelFunc{}}
}

// Path returns the path of a file in the directory.
func (d *SocketDir) Path(name string) string { return filepath.Join(d.path, name) }

// Address returns the gRPC address of the kubelet's registration socket.
func (d *SocketDir) Address() string { return "unix://" + d.Path(socketName) }

// RemoveStale removes the sockets that match the pattern and that no process serves. A killed
// process leaves its sockets behind.
func (d *SocketDir) RemoveStale(ctx context.Context, pattern string) {
	paths, _ := filepath.Glob(d.Path(pattern)) // the only error is a malformed pattern
	for _, path := range paths {
		if served, err := rpc.Served(ctx, path); err == nil && !served {
			_ = os.Remove(path)
		}
	}
}

// RegistrationContext returns a context for the registration of the named socket. It ends when the
// registration becomes invalid: the socket was removed, the kubelet restarted, or end was called.
func (d *SocketDir) RegistrationContext(ctx context.Context, socket string) (registration context.Context, end func()) {
	registration, cancel := context.WithCancel(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registrations[socket] = cancel
	return registration, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.registrations, socket)
		cancel()
	}
}

// Watch watches the directory until ctx ends and then returns nil. It calls onRestart whenever the
// kubelet creates its socket, and ends the contexts of registrations that become invalid. It waits
// for a directory that does not exist.
func (d *SocketDir) Watch(ctx context.Context, onRestart func()) error {
	failures := failurelog.New(d.log,
		"watching the kubelet's directory keeps failing; device plugins do not register again after a restart of the kubelet",
		"watching the kubelet's directory works again")
	_, _ = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, d.watch(ctx, onRestart, failures) },
		backoff.WithBackOff(backoff.NewConstantBackOff(rewatchInterval)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, delay time.Duration) {
			failures.Record(err)
			d.log.Debug("watching the device plugin directory failed", zap.Error(err), zap.Duration("retry_in", delay))
		}))
	return nil
}

// watch returns nil when ctx ends.
func (d *SocketDir) watch(ctx context.Context, onRestart func(), failures *failurelog.Log) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("create watcher: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(d.path); err != nil {
		return fmt.Errorf("watch %s: %w", d.path, err)
	}
	failures.Record(nil)
	d.invalidate(d.sockets()) // events before this moment were missed
	return d.handleEvents(ctx, watcher, onRestart)
}

func (d *SocketDir) handleEvents(ctx context.Context, watcher *fsnotify.Watcher, onRestart func()) error {
	var pending []string
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", d.path, err)
		case event := <-watcher.Events:
			if event.Name == d.path && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return errors.New("the directory was removed")
			}
			if invalid := d.invalidatedBy(event, onRestart); len(invalid) > 0 {
				pending = append(pending, invalid...)
				quiet = time.After(quietPeriod)
			}
		case <-quiet:
			d.invalidate(pending)
			pending, quiet = nil, nil
		}
	}
}

// invalidatedBy returns the sockets whose registrations are invalid after the event.
func (d *SocketDir) invalidatedBy(event fsnotify.Event, onRestart func()) []string {
	name := filepath.Base(event.Name)
	switch {
	case name == socketName && event.Has(fsnotify.Create):
		d.log.Info("the kubelet restarted; registering all device plugins again")
		onRestart()
		return d.sockets()
	case event.Has(fsnotify.Remove | fsnotify.Rename):
		return []string{name}
	default:
		return nil
	}
}

func (d *SocketDir) sockets() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.registrations))
}

func (d *SocketDir) invalidate(sockets []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range sockets {
		if cancel, ok := d.registrations[name]; ok {
			cancel()
		}
	}
}
