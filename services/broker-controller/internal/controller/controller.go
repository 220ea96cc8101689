// Package controller reconciles broker Pods, Jobs and Services with Configurations and Instances.
// It is level-triggered: after any change it compares the whole actual state with the desired
// state.
//
// A stale cache is harmless: names are deterministic, deletions are bound to a UID, and Jobs are
// listed on the API server before one is created. Expectations prevent that a stale cache repeats
// this process's own writes.
package controller

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/services/broker-controller/internal/admission"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/verdicts"
)

const (
	instanceWorkers  = 16
	reconcileTimeout = 30 * time.Second
	jitter           = 0.2
)

// Options of a Controller.
type Options struct {
	Clients cluster.Clients
	Cache   cluster.Cache
	Events  record.EventRecorder
	// Reviewer judges specs that are stored.
	Reviewer admission.Reviewer
	Log      *zap.Logger
	// Verdicts on the Configurations, which become conditions.
	Verdicts *verdicts.Observer
	// OnWrite is called after each write to the API server.
	OnWrite func(kind, verb string, err error)
	// StuckAfter is how long a broker Pod may be pending on its node.
	StuckAfter time.Duration
	// StartTimeout is how long a broker Pod may be unable to start before another node gets it.
	StartTimeout time.Duration
	// PublicationTimeout is how long the brokers of a new Instance wait for its DeviceClass.
	PublicationTimeout time.Duration
}

// Controller reconciles while this process leads.
type Controller struct {
	Options
	sightings     *sightings
	rollout       *rollout
	expectations  *kube.Expectations
	startFailures *startFailures
	// reviews has the review of the last generation of each Configuration.
	reviews   sync.Map
	reviewing singleflight.Group
	// refusals has the messages of the API server about brokers that it rejects, by Instance.
	refusals sync.Map
	// observed Pods and Jobs of each Configuration. Only the worker of statuses uses it.
	observed map[string]map[types.UID]observation

	instances, configurations, statuses queue
}

// queue holds the keys of the objects to reconcile.
type queue struct {
	workqueue.TypedDelayingInterface[string]
	// transient is the backoff of failures that a retry can fix, refused of those that need a
	// change by a user.
	transient, refused workqueue.TypedRateLimiter[string]
}

func newQueue() queue {
	return queue{
		TypedDelayingInterface: workqueue.NewTypedDelayingQueue[string](),
		transient:              workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second),
		refused:                workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute),
	}
}

// Run reconciles until ctx ends. The cache must be synced.
func Run(ctx context.Context, options Options) {
	sightings := newSightings()
	c := &Controller{
		Options: options, sightings: sightings, rollout: newRollout(options.StuckAfter, sightings), expectations: kube.NewExpectations(), startFailures: newStartFailures(),
		observed:  map[string]map[types.UID]observation{},
		instances: newQueue(), configurations: newQueue(), statuses: newQueue(),
	}
	defer c.subscribe()()
	var group sync.WaitGroup
	group.Go(func() { c.work(ctx, c.instances, instanceWorkers, "instance", c.reconcileInstance) })
	group.Go(func() { c.work(ctx, c.configurations, 1, "configuration", c.reconcileConfiguration) })
	group.Go(func() { c.work(ctx, c.statuses, 1, "configuration", c.reconcileStatus) })
	group.Go(func() { c.Verdicts.Run(ctx, c.enqueueStatus) })
	group.Wait()
}

// subscribe fills the queues from the events of the cache until unsubscribe is called. It starts
// with all objects.
func (c *Controller) subscribe() (unsubscribe func()) {
	removals := []func(){
		c.Cache.Pods.OnEvent(c.sightings.changed),
		c.Cache.Instances.OnEvent(c.sightings.instanceChanged),
		c.Cache.DeviceClasses.OnEvent(c.classChanged),
		c.Cache.Instances.OnEvent(func(before, after *akriv0.Instance) { c.instanceChanged(cmp.Or(after, before)) }),
		c.Cache.Configurations.OnEvent(c.configurationChanged),
		c.Cache.Pods.OnEvent(func(before, after *corev1.Pod) { c.brokerChanged(cmp.Or(after, before)) }),
		c.Cache.Jobs.OnEvent(func(before, after *batchv1.Job) { c.brokerChanged(cmp.Or(after, before)) }),
		c.Cache.Services.OnEvent(func(before, after *corev1.Service) { c.brokerChanged(cmp.Or(after, before)) }),
	}
	return func() {
		for _, remove := range removals {
			remove()
		}
	}
}

func (c *Controller) instanceChanged(instance *akriv0.Instance) {
	c.instances.Add(cluster.Key(instance.Namespace, instance.Name))
	c.enqueueConfiguration(cluster.Key(instance.Namespace, instance.Spec.ConfigurationName))
}

func (c *Controller) enqueueConfiguration(key string) {
	c.configurations.Add(key)
	c.enqueueStatus(key)
}

// configurationChanged ignores updates of the status, which changes with every device, except those
// of the conditions of this service.
func (c *Controller) configurationChanged(before, after *akriv0.Configuration) {
	configuration := cmp.Or(after, before)
	key := cluster.Key(configuration.Namespace, configuration.Name)
	if before != nil && after != nil && before.UID == after.UID && before.Generation == after.Generation &&
		(before.DeletionTimestamp == nil) == (after.DeletionTimestamp == nil) && akriv0.AgentFinalizersPatch(after) == nil {
		if !equality.Semantic.DeepEqual(cluster.Own(before.Status.Conditions), cluster.Own(after.Status.Conditions)) {
			c.enqueueStatus(key)
		}
		return
	}
	c.enqueueConfiguration(key)
	for _, instance := range c.Cache.InstancesOf(configuration.Namespace, configuration.Name) {
		c.instances.Add(cluster.Key(instance.Namespace, instance.Name))
	}
}

func (c *Controller) brokerChanged(object metav1.Object) {
	c.instances.Add(c.Cache.InstanceKeyOf(object))
	c.enqueueConfiguration(c.Cache.ConfigurationKeyOf(object))
}

// reconcileFunc reconciles the object with the key. It returns when to do so again even if no
// object changes. Zero means never.
type reconcileFunc func(ctx context.Context, key string) (requeueAfter time.Duration, err error)

func (c *Controller) work(ctx context.Context, queue queue, workers int, logField string, reconcile reconcileFunc) {
	kube.Work(ctx, queue, workers, func(ctx context.Context, key string) {
		c.reconcile(ctx, queue, key, c.Log.With(zap.String(logField, key)), reconcile)
	})
}

func (c *Controller) reconcile(ctx context.Context, queue queue, key string, log *zap.Logger, reconcile reconcileFunc) {
	if !c.expectations.Satisfied(key) {
		queue.AddAfter(key, kube.ExpectationRecheck)
		return
	}
	limited, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	requeueAfter, err := reconcile(limited, key)
	switch {
	case err == nil:
		queue.transient.Forget(key)
		queue.refused.Forget(key)
	case ctx.Err() != nil:
		return
	case onlyRefused(err):
		requeueAfter = wait.Jitter(queue.refused.When(key), jitter)
		log.Error("broker or Service refused", zap.Error(err), zap.Duration("retry_in", requeueAfter))
	default:
		requeueAfter = wait.Jitter(queue.transient.When(key), jitter)
		log.Warn("reconcile failed", zap.Error(err), zap.Duration("retry_in", requeueAfter))
	}
	if requeueAfter > 0 {
		queue.AddAfter(key, requeueAfter)
	}
}
