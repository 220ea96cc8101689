// Package cluster reads and writes the objects of the API server. Informers cache Instances,
// Configurations and Nodes.
package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	lrucache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/resources"

	"akri.sh/services/instance-writer/internal/slots"
)

const (
	callTimeout     = 5 * time.Second
	byNode          = "node"
	byHolder        = "holder"
	byConfiguration = "configuration"
	byGroup         = "group"

	// lookupRate is the number of Configurations that are looked up for reports in a second, and at
	// once.
	lookupRate = 20
	maxAbsent  = 4096
	absentAge  = time.Minute
)

// Cluster reads and writes objects of the API server. Objects from its caches must not be changed.
type Cluster struct {
	kube.Informers

	Instances      *kube.Informer[*akriv0.Instance]
	Configurations *kube.Informer[*akriv0.Configuration]
	Nodes          *kube.Informer[*corev1.Node]
	// Record is how Pods get devices, if the cluster decides it. Otherwise it is nil.
	Record *resources.Record

	writes    *prometheus.CounterVec
	namespace string

	instanceClient      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	configurationClient *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	nodeClient          *kube.Client[*corev1.Node, *corev1.NodeList]
	eventClient         *kube.Client[*corev1.Event, *corev1.EventList]
	leaseClient         *kube.Client[*coordinationv1.Lease, *coordinationv1.LeaseList]
	claimClient         *kube.Client[*resourcev1.ResourceClaim, *resourcev1.ResourceClaimList]

	lookups  *rate.Limiter
	absent   *lrucache.LRUExpireCache // of configurationVersion
	health   *apiHealth
	notReady notReadyNodes

	mu sync.Mutex
	// written has the last write of each Instance that the watch has not delivered yet.
	written cache.Indexer
	// usages are those by the Instances that the watch has delivered, by node.
	usages map[string]usage

	// configurationChange is set at each change of a Configuration.
	configurationChange broadcast.Value[struct{}]
}

// New returns a Cluster whose caches are empty until Run. The namespace is that of the Lease.
// writes counts requests by kind and result, except those to the Lease.
func New(config *rest.Config, namespace string, writes *prometheus.CounterVec) (*Cluster, error) {
	c := &Cluster{
		writes: writes, namespace: namespace,
		written:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byGroup: longNamed, byNode: nodesOf}),
		usages:   map[string]usage{},
		lookups:  rate.NewLimiter(lookupRate, lookupRate),
		absent:   lrucache.NewLRUExpireCache(maxAbsent),
		notReady: notReadyNodes{byName: map[string]notReadySince{}},
	}
	c.health = newAPIHealth(c.probe)
	if err := c.createClients(config); err != nil {
		return nil, err
	}
	c.createInformers()
	for _, kind := range []string{"instance", "status", "event"} {
		for _, result := range []string{"ok", "conflict", "error"} {
			writes.WithLabelValues(kind, result)
		}
	}
	return c, nil
}

func (c *Cluster) createClients(config *rest.Config) error {
	var errs [6]error
	c.instanceClient, errs[0] = kube.Instances(config)
	c.configurationClient, errs[1] = kube.Configurations(config)
	c.nodeClient, errs[2] = kube.Nodes(config)
	events := corev1.SchemeGroupVersion.WithResource("events")
	c.eventClient, errs[3] = kube.NewClient[corev1.Event, corev1.EventList](config, events)
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	c.leaseClient, errs[4] = kube.NewClient[coordinationv1.Lease, coordinationv1.LeaseList](config, leases)
	claims := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	c.claimClient, errs[5] = kube.NewClient[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](config, claims)
	return errors.Join(errs[:]...)
}

func (c *Cluster) createInformers() {
	indexers := cache.Indexers{byNode: nodesOf, byHolder: holdersOf, byConfiguration: configurationOf, byGroup: longNamed}
	c.Instances = kube.NewInformer(c.instanceClient, indexers, nil)
	c.Configurations = kube.NewInformer(c.configurationClient, nil, trimConfiguration)
	c.Nodes = kube.NewInformer(c.nodeClient, nil, trimNode)
	c.Informers = kube.Informers{c.Instances, c.Configurations, c.Nodes}
	c.Instances.OnEvent(c.watched)
	c.Configurations.OnChange(func(string) { c.configurationChange.Set(struct{}{}) })
	contacted := func(string) { c.health.contacted() }
	c.Instances.OnChange(contacted)
	c.Configurations.OnChange(contacted)
	c.Nodes.OnChange(contacted)
}

func nodesOf(object any) ([]string, error) { return instanceOf(object).Spec.Nodes, nil }

// instanceOf returns the Instance of an object of one of the indexes.
func instanceOf(object any) *akriv0.Instance {
	if written, ok := object.(ownWrite); ok {
		return written.Instance
	}
	return object.(*akriv0.Instance)
}

func holdersOf(object any) ([]string, error) { return slots.Holders(object.(*akriv0.Instance)), nil }

func configurationOf(object any) ([]string, error) {
	return []string{Owner(object.(*akriv0.Instance)).String()}, nil
}

// longNamed returns the group of an Instance with a longer name. Almost all Instances have the
// short name and need no index.
func longNamed(object any) ([]string, error) {
	instance := instanceOf(object)
	group := GroupOf(instance)
	if group.ShortName == instance.Name {
		return nil, nil
	}
	return []string{group.String()}, nil
}

// Owner returns the key of the Instance's Configuration.
func Owner(instance *akriv0.Instance) types.NamespacedName {
	return types.NamespacedName{Namespace: instance.Namespace, Name: instance.Spec.ConfigurationName}
}

// Group identifies the Instances of a Configuration with one short name.
type Group struct {
	Configuration types.NamespacedName
	ShortName     string
}

// GroupOf returns the group of the Instance.
func GroupOf(instance *akriv0.Instance) Group {
	return Group{Owner(instance), akriv0.ShortInstanceName(instance.Name)}
}

func (g Group) String() string { return g.Configuration.String() + "/" + g.ShortName }

// Key returns the namespace and name of an object.
func Key(object kube.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Run updates the caches until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.Informers.Run(ctx) })
	running.Go(func() { c.health.run(ctx) })
	running.Wait()
}

// Ready is the readiness check: the caches are complete and the API server answers.
func (c *Cluster) Ready(ctx context.Context) error {
	if err := kube.Synced(c)(ctx); err != nil {
		return err
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
