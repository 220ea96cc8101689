package devicepluginhost

import (
	"context"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
	"akri.sh/services/device-plugin-host/internal/node"
	"akri.sh/services/device-plugin-host/internal/plugin"
	"akri.sh/services/device-plugin-host/internal/resource"
	"akri.sh/services/device-plugin-host/internal/slots"
)

// plugins runs one device plugin for each resource that there is.
type plugins struct {
	host      plugin.Host
	store     *node.Store
	keeper    *slots.Keeper
	allocator allocationv1.ConfigurationAllocatorServiceClient
	metrics   *metrics

	running map[string]*running // by resource name
	ending  map[string]*running // left, and perhaps still busy
	ended   broadcast.Signal    // one of them ended
	group   sync.WaitGroup
}

type running struct {
	plugin *plugin.Plugin
	done   chan struct{}
}

// run starts and ends plugins as the view changes, until ctx ends and all have stopped.
func (p *plugins) run(ctx context.Context) error {
	p.running, p.ending, p.ended = map[string]*running{}, map[string]*running{}, broadcast.NewSignal()
	defer p.group.Wait()
	for {
		view, changed := p.store.Get()
		p.reconcile(ctx, p.wanted(view))
		p.metrics.plugins(len(p.running))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-p.ended:
		}
	}
}

func (p *plugins) reconcile(ctx context.Context, wanted map[string]func() *plugin.Plugin) {
	for name, own := range p.running {
		if !own.plugin.Want(wanted[name] != nil) {
			delete(p.running, name)
			p.ending[name] = own
		}
	}
	maps.DeleteFunc(p.ending, func(_ string, former *running) bool { return former.ended() })
	for name, build := range wanted {
		if p.running[name] == nil {
			p.start(ctx, build(), p.ending[name])
		}
	}
}

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// wanted are the resources that there should be, and how each is made.
func (p *plugins) wanted(view *node.View) map[string]func() *plugin.Plugin {
	wanted := make(map[string]func() *plugin.Plugin, len(view.Devices)+len(view.Configurations))
	for configuration := range view.Configurations {
		name := akriv0.ResourceName(configuration)
		wanted[name] = func() *plugin.Plugin {
			return plugin.New(p.host, name, "configuration", resource.NewConfiguration(configuration, p.store, p.keeper, p.allocator))
		}
	}
	for instance := range view.Devices {
		name := akriv0.ResourceName(instance)
		wanted[name] = func() *plugin.Plugin {
			return plugin.New(p.host, name, "instance", resource.NewInstance(instance, p.store, p.keeper))
		}
	}
	return wanted
}

// settle is how long the kubelet may take to note that a plugin ended, after it closed its connection. Nothing tells when it
// has (client.Run and ManagerImpl.PluginDisconnected in k8s.io/kubernetes/pkg/kubelet/cm/devicemanager).
const settle = 100 * time.Millisecond

// start runs the plugin once the former one of its name has ended: the kubelet knows a resource by its name only, and
// would take the end of the former for that of the new one.
func (p *plugins) start(ctx context.Context, offered *plugin.Plugin, former *running) {
	own := &running{plugin: offered, done: make(chan struct{})}
	p.running[offered.Name] = own
	p.host.Log.Debug("there is a resource to offer", zap.String("resource", offered.Name))
	p.group.Go(func() {
		if former != nil {
			<-former.done
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
		}
		offered.Run(ctx)
		close(own.done)
		p.ended.Notify()
	})
}
