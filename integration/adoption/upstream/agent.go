package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	discoveryv0 "akri.sh/proto/v0"
)

// Times of upstream's agent: it reconciles again after ten minutes, or after an error with a pause
// that begins with a second and doubles without limit.
const (
	requeue    = 10 * time.Minute
	firstRetry = time.Second
	longest    = 24 * time.Hour
)

// AgentConfig configures an Agent.
type AgentConfig struct {
	// Node is the name of the node, upstream's AGENT_NODE_NAME.
	Node string
	// HandlersDir has the registration socket, upstream's DISCOVERY_HANDLERS_DIRECTORY.
	HandlersDir string
	// PluginsDir is the directory of the kubelet's and the device plugins' sockets.
	PluginsDir string
	REST       *rest.Config
	Log        *zap.Logger
}

// Agent is a stand-in for upstream's agent on one node.
type Agent struct {
	AgentConfig
	applier
	discovery *discovery

	configurations     *kube.Informer[*akriv0.Configuration]
	instances          *kube.Informer[*akriv0.Instance]
	configurationQueue workqueue.TypedRateLimitingInterface[string]
	instanceQueue      workqueue.TypedRateLimitingInterface[string]

	mu                   sync.Mutex
	instancePlugins      map[string]*instancePlugin
	configurationPlugins map[string]*configurationPlugin
}

// NewAgent returns an agent.
func NewAgent(config AgentConfig) (*Agent, error) {
	client, err := dynamic.NewForConfig(config.REST)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	configurations, err := kube.Configurations(config.REST)
	if err != nil {
		return nil, err
	}
	instances, err := kube.Instances(config.REST)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		AgentConfig: config, applier: applier{config.Node, client},
		configurations: kube.NewInformer(configurations, nil, nil), instances: kube.NewInformer(instances, nil, nil),
		configurationQueue: newQueue(), instanceQueue: newQueue(),
		instancePlugins: map[string]*instancePlugin{}, configurationPlugins: map[string]*configurationPlugin{},
	}
	a.discovery = newDiscovery(config.Log, func(namespace, name string) { a.configurationQueue.Add(namespace + "/" + name) })
	a.configurations.OnChange(a.configurationQueue.Add)
	a.instances.OnChange(a.instanceQueue.Add)
	return a, nil
}

func newQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, longest))
}

// Run serves until ctx ends. It leaves the sockets of device plugins and their registrations.
func (a *Agent) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.serveRegistrations(ctx) })
	informers := kube.Informers{a.configurations, a.instances}
	group.Go(func() error { informers.Run(ctx); return nil })
	group.Go(func() error {
		if err := kube.WaitForSync(ctx, informers); err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		var workers sync.WaitGroup
		workers.Go(func() { a.work(ctx, a.configurationQueue, a.reconcileConfiguration) })
		workers.Go(func() { a.work(ctx, a.instanceQueue, a.reconcileInstance) })
		workers.Wait()
		a.stopPlugins()
		return nil
	})
	return group.Wait()
}

func (a *Agent) stopPlugins() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, plugin := range a.instancePlugins {
		plugin.server.Stop()
	}
	for _, plugin := range a.configurationPlugins {
		plugin.server.Stop()
	}
}

// serveRegistrations serves v0.Registration. It removes the socket of another process.
func (a *Agent) serveRegistrations(ctx context.Context) error {
	path := filepath.Join(a.HandlersDir, "agent-registration.sock")
	server := grpc.NewServer()
	discoveryv0.RegisterRegistrationServer(server, a.discovery)
	return serve(ctx, server, path)
}

func (a *Agent) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], reconcile func(context.Context, string) error) {
	kube.Work(ctx, queue, 1, func(ctx context.Context, key string) {
		if err := reconcile(ctx, key); err != nil {
			a.Log.Warn("reconciling failed", zap.String("object", key), zap.Error(err))
			queue.AddRateLimited(key)
			return
		}
		queue.Forget(key)
		queue.AddAfter(key, requeue)
	})
}

// reconcileConfiguration adds the finalizer of the node, starts the discovery, and makes the
// Instances those of the devices. A discovery that has just been started has no devices yet: an
// agent that starts removes the Instances of its node, and creates them again.
func (a *Agent) reconcileConfiguration(ctx context.Context, key string) error {
	configuration, exists := a.configurations.Get(key)
	if !exists {
		return nil
	}
	if configuration.DeletionTimestamp != nil {
		a.discovery.terminate(configuration.Name)
		return a.withoutFinalizer(ctx, akriv0.ConfigurationResource, "Configuration", configuration.Namespace, configuration.Name)
	}
	if !slices.Contains(configuration.Finalizers, a.node) {
		if err := a.finalizer(ctx, akriv0.ConfigurationResource, "Configuration", configuration.Namespace, configuration.Name); err != nil {
			return err
		}
	}
	devices, started := a.discovery.devices(configuration.Name)
	if !started {
		if err := a.discovery.start(context.WithoutCancel(ctx), configuration); err != nil {
			return err
		}
	}

	wanted := map[string]bool{}
	for _, d := range devices {
		wanted[akriv0.InstanceName(configuration.Name, d.digest(a.node))] = true
	}
	for _, instance := range a.instances.List() {
		if !metav1.IsControlledBy(instance, configuration) || wanted[instance.Name] {
			continue
		}
		if err := a.deleteInstance(ctx, instance); err != nil {
			return err
		}
	}
	for _, d := range devices {
		if err := a.applyInstance(ctx, configuration, d); err != nil {
			return err
		}
	}
	return nil
}

// deleteInstance deletes an Instance of this node only, and leaves one that other nodes also see.
func (a *Agent) deleteInstance(ctx context.Context, instance *akriv0.Instance) error {
	switch {
	case !slices.Contains(instance.Spec.Nodes, a.node):
		return nil
	case len(instance.Spec.Nodes) > 1:
		return a.leave(ctx, instance)
	}
	err := a.client.Resource(akriv0.InstanceResource).Namespace(instance.Namespace).Delete(ctx, instance.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Instance %s: %w", instance.Name, err)
	}
	return nil
}

// reconcileInstance runs the device plugins of an Instance that lists this node, and stops those of
// the others. The finalizer of the node is applied each time.
func (a *Agent) reconcileInstance(ctx context.Context, key string) error {
	instance, exists := a.instances.Get(key)
	if !exists {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if instance.DeletionTimestamp != nil || !slices.Contains(instance.Spec.Nodes, a.node) {
		a.removePlugin(instance)
		return a.withoutFinalizer(ctx, akriv0.InstanceResource, "Instance", instance.Namespace, instance.Name)
	}

	content, err := a.content(instance)
	if err != nil {
		return err
	}
	if err := a.finalizer(ctx, akriv0.InstanceResource, "Instance", instance.Namespace, instance.Name); err != nil {
		return err
	}
	plugin := a.instancePlugins[instance.Name]
	if plugin != nil {
		plugin.update(instance.Spec.DeviceUsage)
	} else {
		plugin = newInstancePlugin(a.applier, instance, content)
		if plugin.server, err = register(ctx, a.PluginsDir, instance.Name, plugin); err != nil {
			return err
		}
		a.instancePlugins[instance.Name] = plugin
	}
	return a.addToConfiguration(ctx, instance, plugin)
}

// addToConfiguration adds the slots of an Instance to the resource of its Configuration.
func (a *Agent) addToConfiguration(ctx context.Context, instance *akriv0.Instance, plugin *instancePlugin) (err error) {
	name := instance.Spec.ConfigurationName
	ofConfiguration := a.configurationPlugins[name]
	if ofConfiguration == nil {
		ofConfiguration = newConfigurationPlugin(name, a.node)
		if ofConfiguration.server, err = register(ctx, a.PluginsDir, name, ofConfiguration); err != nil {
			return err
		}
		a.configurationPlugins[name] = ofConfiguration
	}
	ofConfiguration.add(plugin)
	return nil
}

// removePlugin stops the device plugin of an Instance, and with the last one that of its
// Configuration.
func (a *Agent) removePlugin(instance *akriv0.Instance) {
	plugin := a.instancePlugins[instance.Name]
	if plugin == nil {
		return
	}
	name := instance.Spec.ConfigurationName
	if ofConfiguration := a.configurationPlugins[name]; ofConfiguration != nil && ofConfiguration.remove(instance.Name) {
		ofConfiguration.server.Stop()
		delete(a.configurationPlugins, name)
	}
	plugin.server.Stop()
	delete(a.instancePlugins, instance.Name)
}

// content returns what a container gets that uses the Instance. It does not change later.
func (a *Agent) content(instance *akriv0.Instance) (device, error) {
	devices, _ := a.discovery.devices(instance.Spec.ConfigurationName)
	for _, d := range devices {
		if akriv0.CDIName(instance.Spec.ConfigurationName, d.digest(a.node)) != instance.Spec.CDIName {
			continue
		}
		message := &discoveryv0.Device{
			Id: d.GetId(), Properties: instance.Spec.BrokerProperties, Mounts: d.GetMounts(), DeviceSpecs: d.GetDeviceSpecs(),
		}
		return device{message, d.shared}, nil
	}
	return device{}, fmt.Errorf("unknown device %s", instance.Spec.CDIName)
}

// serve serves on a unix socket until ctx ends. A socket that exists is removed, also if it is in
// use.
func serve(ctx context.Context, server *grpc.Server, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	listener, err := listen(ctx, path)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serve %s: %w", strings.TrimSuffix(filepath.Base(path), ".sock"), err)
	}
	return nil
}
