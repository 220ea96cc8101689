// Package plugin implements the kubelet's device plugin API v1beta1 for the extended resources of
// Instances and Configurations.
package plugin

import (
	"context"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
	"akri.sh/services/device-plugin-host/internal/kubelet"
)

// disconnectGrace is how long the kubelet may take to process the end of a plugin after it closed
// its connection. The API has no event for it (client.Run and ManagerImpl.PluginDisconnected in
// k8s.io/kubernetes/pkg/kubelet/cm/devicemanager).
const disconnectGrace = 100 * time.Millisecond

// Config has the dependencies of all device plugins.
type Config struct {
	Server    *Server
	SocketDir *kubelet.SocketDir
	Registrar *kubelet.Registrar
	Store     *node.Store
	Slots     *slots.Manager
	Allocator allocationv1.ConfigurationAllocatorServiceClient
	Metrics   Metrics
	Log       *zap.Logger
}

// Metrics counts what device plugins do.
type Metrics interface {
	// SetDevicePlugins sets the number of running device plugins.
	SetDevicePlugins(count int)
	// Allocated counts an Allocate call. level is instance or configuration.
	Allocated(level string, err error, duration time.Duration)
	// Registered counts a registration with the kubelet.
	Registered(err error)
}

// Manager runs one device plugin for each extended resource of the node.
type Manager struct {
	config Config

	devicePlugins map[string]*plugin // by resource name
	stopping      map[string]*plugin // removed from devicePlugins, and possibly still running
	stopped       broadcast.Signal
	group         sync.WaitGroup
}

// NewManager returns a Manager. Run starts it.
func NewManager(config Config) *Manager {
	return &Manager{
		config: config, devicePlugins: map[string]*plugin{}, stopping: map[string]*plugin{}, stopped: broadcast.NewSignal(),
	}
}

// Run starts and stops device plugins as the node changes. It returns nil after ctx ended, all
// plugins have stopped, and the kubelet has processed their ends: other plugins of the resources
// may register then.
func (m *Manager) Run(ctx context.Context) error {
	defer m.wait()
	for {
		snapshot, changed := m.config.Store.Get()
		m.reconcile(ctx, m.desired(snapshot))
		m.config.Metrics.SetDevicePlugins(len(m.devicePlugins))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-m.stopped:
		}
	}
}

// wait waits for the end of all plugins.
func (m *Manager) wait() {
	m.group.Wait()
	m.config.Metrics.SetDevicePlugins(0)
	if len(m.devicePlugins)+len(m.stopping) > 0 {
		<-time.After(disconnectGrace)
	}
}

func (m *Manager) reconcile(ctx context.Context, desired map[string]resource) {
	for name, p := range m.devicePlugins {
		if !p.setExists(desired[name] != nil) {
			delete(m.devicePlugins, name)
			m.stopping[name] = p
		}
	}
	maps.DeleteFunc(m.stopping, func(_ string, p *plugin) bool { return p.exited() })
	for name, resource := range desired {
		if m.devicePlugins[name] == nil {
			m.start(ctx, newPlugin(m.config, name, resource), m.stopping[name])
		}
	}
}

// desired returns the resources that should exist, by name.
func (m *Manager) desired(snapshot *node.Snapshot) map[string]resource {
	desired := make(map[string]resource, len(snapshot.Devices)+len(snapshot.Configurations))
	for name := range snapshot.Configurations {
		desired[akriv0.ResourceName(name)] = &configurationResource{
			name: name, store: m.config.Store, slots: m.config.Slots, allocator: m.config.Allocator,
		}
	}
	for name := range snapshot.Devices {
		desired[akriv0.ResourceName(name)] = &instanceResource{name: name, store: m.config.Store, slots: m.config.Slots}
	}
	return desired
}

// start runs the plugin after the previous plugin of the resource has stopped. The kubelet
// identifies plugins by resource name only, so it would take the end of the previous plugin for the
// end of the new one.
func (m *Manager) start(ctx context.Context, plugin, previous *plugin) {
	m.devicePlugins[plugin.name] = plugin
	m.config.Log.Debug("starting device plugin", zap.String("resource", plugin.name))
	m.group.Go(func() {
		if previous != nil {
			<-previous.done
			select {
			case <-ctx.Done():
			case <-time.After(disconnectGrace):
			}
		}
		plugin.run(ctx)
		close(plugin.done)
		m.stopped.Notify()
	})
}
