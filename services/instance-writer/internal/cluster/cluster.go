// Package cluster reads and writes the objects of the API server. Informers cache Instances,
// Configurations and Nodes.
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
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"

	"akri.sh/services/instance-writer/internal/slots"
)

const (
	callTimeout     = 5 * time.Second
	byNode          = "node"
	byHolder        = "holder"
	byConfiguration = "configuration"
)

// Cluster reads and writes objects of the API server. Objects from its caches must not be changed.
type Cluster struct {
	writes *prometheus.CounterVec

	instanceClient      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	configurationClient *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	nodeClient          *kube.Client[*corev1.Node, *corev1.NodeList]
	eventClient         *kube.Client[*corev1.Event, *corev1.EventList]

	instances      *kube.Informer[*akriv0.Instance]
	configurations *kube.Informer[*akriv0.Configuration]
	nodes          *kube.Informer[*corev1.Node]

	health   *apiHealth
	notReady notReadyNodes

	mu sync.Mutex
	// written holds the Instances that this process wrote and that the watch has not delivered yet.
	written map[types.NamespacedName]*akriv0.Instance

	// configurationChange is set at each change of a Configuration.
	configurationChange broadcast.Value[struct{}]
}

// New returns a Cluster whose caches are empty until Run. writes counts requests by kind and
// result.
func New(config *rest.Config, writes *prometheus.CounterVec) (*Cluster, error) {
	c := &Cluster{
		writes: writes, written: map[types.NamespacedName]*akriv0.Instance{},
		notReady: notReadyNodes{byName: map[string]notReadySince{}},
	}
	c.health = newAPIHealth(c.probe)
	if err := c.createClients(config); err != nil {
		return nil, err
	}
	if err := c.createInformers(); err != nil {
		return nil, err
	}
	for _, kind := range []string{"instance", "status", "event"} {
		for _, result := range []string{"ok", "conflict", "error"} {
			writes.WithLabelValues(kind, result)
		}
	}
	return c, nil
}

func (c *Cluster) createClients(config *rest.Config) (err error) {
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

func (c *Cluster) createInformers() (err error) {
	indexers := cache.Indexers{byNode: nodesOf, byHolder: holdersOf, byConfiguration: configurationOf}
	if c.instances, err = kube.NewInformer(c.instanceClient, indexers, nil); err != nil {
		return err
	}
	if c.configurations, err = kube.NewInformer(c.configurationClient, nil, trimConfiguration); err != nil {
		return err
	}
	if c.nodes, err = kube.NewInformer(c.nodeClient, nil, trimNode); err != nil {
		return err
	}
	contacted := func(string) { c.health.contacted() }
	return errors.Join(
		c.instances.OnChange(c.dropWritten),
		c.configurations.OnChange(func(string) { c.configurationChange.Set(struct{}{}) }),
		c.instances.OnChange(contacted), c.configurations.OnChange(contacted), c.nodes.OnChange(contacted),
	)
}

func nodesOf(object any) ([]string, error) { return object.(*akriv0.Instance).Spec.Nodes, nil }

func holdersOf(object any) ([]string, error) { return slots.Holders(object.(*akriv0.Instance)), nil }

func configurationOf(object any) ([]string, error) {
	return []string{Owner(object.(*akriv0.Instance)).String()}, nil
}

// Owner returns the key of the Instance's Configuration.
func Owner(instance *akriv0.Instance) types.NamespacedName {
	return types.NamespacedName{Namespace: instance.Namespace, Name: instance.Spec.ConfigurationName}
}

// Key returns the namespace and name of an object.
func Key(object kube.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Run updates the caches until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.instances.RunWithContext(ctx) })
	running.Go(func() { c.configurations.RunWithContext(ctx) })
	running.Go(func() { c.nodes.RunWithContext(ctx) })
	running.Go(func() { c.health.run(ctx) })
	running.Wait()
}

// WaitForSync waits until the caches are complete.
func (c *Cluster) WaitForSync(ctx context.Context) error {
	return kube.WaitForSync(ctx, c.instances, c.configurations, c.nodes)
}

// Ready is the readiness check: the caches are complete and the API server answers.
func (c *Cluster) Ready(context.Context) error {
	if !c.instances.HasSynced() || !c.configurations.HasSynced() || !c.nodes.HasSynced() {
		return kube.ErrNotSynced
	}
	return c.health.check()
}

// ConnectionLost returns a channel that is closed while the API server has not answered for 20 s.
func (c *Cluster) ConnectionLost() <-chan struct{} { return c.health.connectionLost() }

// probe reads one object.
func (c *Cluster) probe(ctx context.Context) error {
	_, err := c.configurationClient.In(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// Handlers are called one after the other when an object is created (before is nil), updated or
// deleted (after is nil). They must not block.
type Handlers struct {
	Instance      func(before, after *akriv0.Instance)
	Configuration func(before, after *akriv0.Configuration)
	Node          func(before, after *corev1.Node)
}

// AddHandlers registers the handlers that are not nil.
func (c *Cluster) AddHandlers(handlers Handlers) error {
	return errors.Join(
		addHandler(c.instances, handlers.Instance),
		addHandler(c.configurations, handlers.Configuration),
		addHandler(c.nodes, handlers.Node),
	)
}

func addHandler[T kube.Object](informer *kube.Informer[T], handler func(before, after T)) error {
	if handler == nil {
		return nil
	}
	var none T
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(after any) { handler(none, after.(T)) },
		UpdateFunc: func(before, after any) { handler(before.(T), after.(T)) },
		DeleteFunc: func(before any) {
			if unknown, ok := before.(cache.DeletedFinalStateUnknown); ok {
				before = unknown.Obj
			}
			handler(before.(T), none)
		},
	})
	if err != nil {
		return fmt.Errorf("add event handler: %w", err)
	}
	return nil
}

func (c *Cluster) countWrite(kind string, err error) {
	result := "ok"
	switch {
	case isConflict(err):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	c.writes.WithLabelValues(kind, result).Inc()
}
