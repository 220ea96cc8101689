// Package cluster is the API server as this service sees it: copies of Instances, Configurations
// and Nodes kept by watches, and the few calls that write.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"

	"akri.sh/services/instance-writer/internal/pulse"
	"akri.sh/services/instance-writer/internal/slots"
)

const (
	callTimeout     = 5 * time.Second
	byNode          = "node"
	byHolder        = "holder"
	byConfiguration = "configuration"
)

type (
	instances      = kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	configurations = kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	nodes          = kube.Client[*corev1.Node, *corev1.NodeList]
	events         = kube.Client[*corev1.Event, *corev1.EventList]
)

// Cluster reads and writes the API server.
type Cluster struct {
	writes *prometheus.CounterVec

	instanceClient      *instances
	configurationClient *configurations
	nodeClient          *nodes
	eventClient         *events

	instances      *kube.Informer[*akriv0.Instance]
	configurations *kube.Informer[*akriv0.Configuration]
	nodes          *kube.Informer[*corev1.Node]

	pulse *pulse.Pulse

	mu sync.Mutex
	// written are Instances that this process wrote and that the watch has not brought back yet.
	written map[types.NamespacedName]*akriv0.Instance
	// changed is closed at the next change of a Configuration.
	changed chan struct{}
}

// New returns a Cluster that knows nothing before Run. `writes` counts calls by kind and result.
func New(config *rest.Config, writes *prometheus.CounterVec) (*Cluster, error) {
	c := &Cluster{writes: writes, written: map[types.NamespacedName]*akriv0.Instance{}, changed: make(chan struct{})}
	c.pulse = pulse.New(c.ask)
	if err := c.connect(config); err != nil {
		return nil, err
	}
	if err := c.observe(); err != nil {
		return nil, err
	}
	for _, kind := range []string{"instance", "status", "event"} {
		for _, result := range []string{"ok", "conflict", "error"} {
			writes.WithLabelValues(kind, result)
		}
	}
	return c, nil
}

func (c *Cluster) connect(config *rest.Config) (err error) {
	if c.instanceClient, err = kube.Instances(config); err != nil {
		return err
	}
	if c.configurationClient, err = kube.Configurations(config); err != nil {
		return err
	}
	if c.nodeClient, err = kube.Nodes(config); err != nil {
		return err
	}
	c.eventClient, err = kube.NewClient(config, corev1.SchemeGroupVersion.WithResource("events"), corev1.AddToScheme,
		func() *corev1.Event { return &corev1.Event{} }, func() *corev1.EventList { return &corev1.EventList{} })
	return err
}

func (c *Cluster) observe() (err error) {
	indexes := cache.Indexers{byNode: nodesOf, byHolder: holdersOf, byConfiguration: configurationOf}
	if c.instances, err = kube.NewInformer(c.instanceClient, indexes, nil); err != nil {
		return err
	}
	if c.configurations, err = kube.NewInformer(c.configurationClient, nil, trimConfiguration); err != nil {
		return err
	}
	if c.nodes, err = kube.NewInformer(c.nodeClient, nil, trimNode); err != nil {
		return err
	}
	heard := func(string) { c.pulse.Heard() }
	return errors.Join(
		c.instances.OnChange(c.arrived), c.configurations.OnChange(func(string) { c.announce() }),
		c.instances.OnChange(heard), c.configurations.OnChange(heard), c.nodes.OnChange(heard),
	)
}

func nodesOf(object any) ([]string, error) { return object.(*akriv0.Instance).Spec.Nodes, nil }

func holdersOf(object any) ([]string, error) { return slots.Holders(object.(*akriv0.Instance)), nil }

func configurationOf(object any) ([]string, error) {
	return []string{Owner(object.(*akriv0.Instance)).String()}, nil
}

// Owner is the Configuration of an Instance.
func Owner(instance *akriv0.Instance) types.NamespacedName {
	return types.NamespacedName{Namespace: instance.Namespace, Name: instance.Spec.ConfigurationName}
}

// Key is the name of an object with its namespace.
func Key(object kube.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// trimConfiguration drops what only others read; a status write does not look at it.
func trimConfiguration(c *akriv0.Configuration) {
	c.Annotations, c.Labels = nil, nil
	c.Spec.BrokerSpec, c.Spec.InstanceServiceSpec, c.Spec.ConfigurationServiceSpec, c.Spec.BrokerProperties = nil, nil, nil, nil
	c.Spec.DiscoveryHandler.DiscoveryDetails, c.Spec.DiscoveryHandler.DiscoveryProperties = "", nil
}

// Run keeps the copies up to date until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.instances.RunWithContext(ctx) })
	running.Go(func() { c.configurations.RunWithContext(ctx) })
	running.Go(func() { c.nodes.RunWithContext(ctx) })
	running.Go(func() { c.pulse.Run(ctx) })
	running.Wait()
}

// Synced waits until the copies are complete.
func (c *Cluster) Synced(ctx context.Context) error {
	return kube.WaitForSync(ctx, c.instances, c.configurations, c.nodes)
}

// Ready is the readiness check.
func (c *Cluster) Ready(context.Context) error {
	if !c.instances.HasSynced() || !c.configurations.HasSynced() || !c.nodes.HasSynced() {
		return kube.ErrNotSynced
	}
	return c.pulse.Silent()
}

// Lost is closed while the API server has not answered for so long that another replica should be
// asked.
func (c *Cluster) Lost() <-chan struct{} { return c.pulse.Lost() }

// ask reads as little as can be.
func (c *Cluster) ask(ctx context.Context) error {
	_, err := c.configurationClient.In(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// InstancesOf returns the Instances of a Configuration. They must not be changed.
func (c *Cluster) InstancesOf(configuration types.NamespacedName) []*akriv0.Instance {
	return c.instances.ByIndex(byConfiguration, configuration.String())
}

// InstancesOn returns the Instances that list the node. They must not be changed.
func (c *Cluster) InstancesOn(node string) []*akriv0.Instance {
	return c.instances.ByIndex(byNode, node)
}

// InstancesHeldBy returns the Instances that the node has a slot of. They must not be changed.
func (c *Cluster) InstancesHeldBy(node string) []*akriv0.Instance {
	return c.instances.ByIndex(byHolder, node)
}

// Instances returns all Instances. They must not be changed.
func (c *Cluster) Instances() []*akriv0.Instance { return c.instances.List() }

// Configurations returns all Configurations. They must not be changed.
func (c *Cluster) Configurations() []*akriv0.Configuration { return c.configurations.List() }

// Changes are called, one after the other, when an object appears (before is nil), changes, or goes
// (after is nil). They must not block.
type Changes struct {
	Instance      func(before, after *akriv0.Instance)
	Configuration func(before, after *akriv0.Configuration)
	Node          func(before, after *corev1.Node)
}

// OnChange asks for changes to be told.
func (c *Cluster) OnChange(changes Changes) error {
	return firstError(
		tell(c.instances, changes.Instance),
		tell(c.configurations, changes.Configuration),
		tell(c.nodes, changes.Node),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("add event handler: %w", err)
		}
	}
	return nil
}

func tell[T kube.Object](informer *kube.Informer[T], f func(before, after T)) error {
	var none T
	if f == nil {
		return nil
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(after any) { f(none, after.(T)) },
		UpdateFunc: func(before, after any) { f(before.(T), after.(T)) },
		DeleteFunc: func(before any) {
			if missed, ok := before.(cache.DeletedFinalStateUnknown); ok {
				before = missed.Obj
			}
			f(before.(T), none)
		},
	})
	return err
}
