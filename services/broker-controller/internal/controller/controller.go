// Package controller keeps brokers and Services as the Configurations ask. It is level-triggered:
// whatever happened, it compares all that is there with all that should be there. A cache that is
// behind can do no harm: names are deterministic, removals are bound to a UID, and what must not
// happen twice is looked up on the API server first. One that is behind this process's own writes
// is waited for, or they would be sent again.
package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
)

const (
	instanceWorkers  = 16
	reconcileTimeout = 30 * time.Second
	jitter           = 0.2
)

// Settings of a Controller.
type Settings struct {
	Clients cluster.Clients
	Cache   cluster.Cache
	Events  cluster.Recorder
	Log     *zap.Logger
	// Written is told of every write: kind, verb and its error.
	Written func(kind, verb string, err error)
	// StuckAfter is how long a broker Pod may be pending on its node.
	StuckAfter time.Duration
}

// Controller is one term of leading.
type Controller struct {
	Settings
	turns                     turns
	fences                    *fences
	instances, configurations queue
}

// queue holds the keys of objects that need a look.
type queue struct {
	workqueue.TypedDelayingInterface[string]
	// transient back-off is for what heals by itself, refused for what waits for a person.
	transient, refused workqueue.TypedRateLimiter[string]
}

func newQueue() queue {
	return queue{
		TypedDelayingInterface: workqueue.NewTypedDelayingQueue[string](),
		transient:              workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second),
		refused:                workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 5*time.Minute),
	}
}

// Run works until ctx ends. The cache must be synced.
func Run(ctx context.Context, settings Settings) error {
	c := &Controller{Settings: settings, turns: turns{}, fences: newFences(), instances: newQueue(), configurations: newQueue()}
	stop := context.AfterFunc(ctx, func() {
		c.instances.ShutDown()
		c.configurations.ShutDown()
	})
	defer stop()
	unsubscribe, err := c.subscribe()
	defer unsubscribe()
	if err != nil {
		return err
	}
	var group errgroup.Group
	for range instanceWorkers {
		group.Go(func() error { c.work(ctx, c.instances, "instance", c.reconcileInstance); return nil })
	}
	group.Go(func() error { c.work(ctx, c.configurations, "configuration", c.reconcileConfiguration); return nil })
	return group.Wait()
}

// subscribe puts whatever changes, and at first everything, on the queues.
func (c *Controller) subscribe() (unsubscribe func(), err error) {
	handlers := []struct {
		informer cache.SharedIndexInformer
		changed  func(old, object metav1.Object)
	}{
		{c.Cache.Instances, c.instanceChanged},
		{c.Cache.Configurations, c.configurationChanged},
		{c.Cache.Pods, c.brokerChanged},
		{c.Cache.Jobs, c.brokerChanged},
		{c.Cache.Services, c.brokerChanged},
	}
	var undo []func()
	unsubscribe = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, h := range handlers {
		registration, err := h.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { h.changed(nil, object.(metav1.Object)) },
			UpdateFunc: func(old, object any) { h.changed(old.(metav1.Object), object.(metav1.Object)) },
			DeleteFunc: func(object any) {
				if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = unknown.Obj
				}
				if gone, ok := object.(metav1.Object); ok {
					h.changed(nil, gone)
				}
			},
		})
		if err != nil {
			return unsubscribe, err
		}
		undo = append(undo, func() { _ = h.informer.RemoveEventHandler(registration) })
	}
	return unsubscribe, nil
}

func (c *Controller) instanceChanged(_, object metav1.Object) {
	instance := object.(*akriv0.Instance)
	c.instances.Add(cluster.Key(instance.Namespace, instance.Name))
	c.configurations.Add(cluster.Key(instance.Namespace, instance.Spec.ConfigurationName))
}

// configurationChanged looks at specs, and at what Akri's agents left: the status changes with
// every device.
func (c *Controller) configurationChanged(old, object metav1.Object) {
	if old != nil && old.GetUID() == object.GetUID() && old.GetGeneration() == object.GetGeneration() &&
		(old.GetDeletionTimestamp() == nil) == (object.GetDeletionTimestamp() == nil) &&
		!slices.ContainsFunc(object.GetFinalizers(), ofAgent) {
		return
	}
	c.configurations.Add(cluster.Key(object.GetNamespace(), object.GetName()))
	for _, instance := range c.Cache.InstancesOf(object.GetNamespace(), object.GetName()) {
		c.instances.Add(cluster.Key(instance.Namespace, instance.Name))
	}
}

func (c *Controller) brokerChanged(_, object metav1.Object) {
	c.instances.Add(c.Cache.InstanceKeyOf(object))
	c.configurations.Add(c.Cache.ConfigurationKeyOf(object))
}

func (c *Controller) work(
	ctx context.Context, queue queue, field string, reconcile func(context.Context, string) (time.Duration, error),
) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		c.workOn(ctx, queue, key, c.Log.With(zap.String(field, key)), reconcile)
		queue.Done(key)
	}
}

func (c *Controller) workOn(
	ctx context.Context, queue queue, key string, log *zap.Logger, reconcile func(context.Context, string) (time.Duration, error),
) {
	if c.fences.stand(key) {
		queue.AddAfter(key, lookAgain)
		return
	}
	limited, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	again, err := reconcile(limited, key)
	switch {
	case err == nil:
		queue.transient.Forget(key)
		queue.refused.Forget(key)
	case ctx.Err() != nil: // stopping
		return
	case errors.Is(err, errRefused):
		again = wait.Jitter(queue.refused.When(key), jitter)
		log.Error("broker refused", zap.Error(err), zap.Duration("retry_in", again))
	default:
		again = wait.Jitter(queue.transient.When(key), jitter)
		log.Warn("reconcile failed", zap.Error(err), zap.Duration("retry_in", again))
	}
	if again > 0 {
		queue.AddAfter(key, again)
	}
}
