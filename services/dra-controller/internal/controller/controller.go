// Package controller writes the DeviceClasses and ResourceSlices that Configurations, Instances and
// Nodes require. It is level-triggered: after any change it compares the objects that the change
// concerns with those of the API server, and writes only what differs. A stale cache is harmless:
// names are deterministic, updates carry a resourceVersion, and deletions a uid. Expectations
// prevent that a stale cache repeats this process's own writes.
package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/resources"
	"akri.sh/services/dra-controller/internal/desired"
)

const (
	workers      = 8
	writeTimeout = 10 * time.Second
	minRetry     = 50 * time.Millisecond
	maxRetry     = 30 * time.Second
)

// Options of a Controller.
type Options struct {
	Cache Cache
	// Record is how Pods get devices, if the cluster decides it. Otherwise it is nil.
	Record *resources.Record
	Log    *zap.Logger
	// BindingTimeout is the time after which the scheduler gives up a claim that was deleted while
	// it bound the Pod.
	BindingTimeout time.Duration
	// OnWrite is called after each write to the API server.
	OnWrite func(kind, verb string, err error)
}

// key names a DeviceClass or a pool to reconcile.
type key struct {
	isClass bool
	name    string
	// again means that a slice of the pool is written also if none differs. With a class it means
	// the pool of one of its devices.
	again bool
	// due is the time of a delayed write, in seconds since 1970.
	due int64
}

// rootKey is the key of the DeviceClass that owns all other objects.
var rootKey = key{isClass: true, name: akriv0.Driver}

// String returns the key of the expectations.
func (k key) String() string { return fmt.Sprint(k.isClass, "/", k.name) }

type controller struct {
	Options
	features     desired.Features
	queue        workqueue.TypedRateLimitingInterface[key]
	expectations *kube.Expectations
	root         classWriter
	classes      classWriter
	slices       sliceWriter
}

// Run reconciles until ctx ends. The cache must be synced.
func Run(ctx context.Context, options Options) {
	c := &controller{
		Options: options,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](minRetry, maxRetry)),
		expectations: kube.NewExpectations(),
	}
	c.root, c.classes, c.slices = c.rootWriter(), c.classWriter(), c.sliceWriter()
	if err := c.awaitFeatures(ctx); err != nil {
		return // ctx ended
	}
	c.subscribe()
	kube.Work(ctx, c.queue, workers, c.reconcileOnce)
}

// subscribe fills the queue, at first with all objects. The handlers stay, because the cache stops
// with the controller.
func (c *controller) subscribe() {
	c.Cache.Instances.OnEvent(c.instanceChanged)
	c.Cache.Configurations.OnEvent(func(before, after *akriv0.Configuration) { c.configurationChanged(cmp.Or(after, before)) })
	c.Cache.Nodes.OnEvent(func(before, after *corev1.Node) {
		if before == nil || after == nil || !maps.Equal(before.Labels, after.Labels) || before.Status.NodeInfo != after.Status.NodeInfo {
			c.nodeChanged(cmp.Or(after, before).Name)
		}
	})
	if c.Record != nil {
		c.Record.OnChange(func(string) { c.rootChanged() })
	}
	c.Cache.Classes.OnChange(func(name string) { c.queue.Add(key{isClass: true, name: name}) })
	c.Cache.Slices.OnEvent(c.sliceChanged)
	c.Cache.Root.OnChange(func(string) { c.rootChanged() })

	claims := seenClaims{}
	c.Cache.Claims.OnEvent(func(before, after *resourcev1.ResourceClaim) {
		c.allocationChanged(before)
		c.allocationChanged(after)
		switch {
		case after == nil:
			c.claimDeleted(before, claims.remove(before))
		case claims.add(after):
			c.claimAllocated(after)
		}
	})
}

// instanceChanged ignores changes that the slices do not show, such as most reservations.
func (c *controller) instanceChanged(before, after *akriv0.Instance) {
	if before != nil && after != nil && equality.Semantic.DeepEqual(c.offers(before), c.offers(after)) {
		return
	}
	for _, instance := range []*akriv0.Instance{before, after} {
		if instance != nil {
			c.queue.Add(key{name: c.pool(instance)})
			c.queue.Add(key{isClass: true, name: akriv0.DeviceClassName(instance.Name)})
		}
	}
}

// sliceChanged also reconciles the pools of the devices that were in the slice: one that moves to
// another pool gets there when it is in no slice of the earlier one.
func (c *controller) sliceChanged(before, after *resourcev1.ResourceSlice) {
	for _, slice := range []*resourcev1.ResourceSlice{before, after} {
		if slice == nil {
			continue
		}
		c.queue.Add(key{name: slice.Spec.Pool.Name})
		for _, name := range devicesOf(slice) {
			if instance, exists := c.Cache.Instances.Get(name); exists {
				c.queue.Add(key{name: c.pool(instance)})
			}
		}
	}
}

func (c *controller) configurationChanged(configuration *akriv0.Configuration) {
	c.queue.Add(key{isClass: true, name: akriv0.DeviceClassName(configuration.Name)})
	for _, instance := range c.Cache.Instances.ByIndex(byConfiguration, configuration.Namespace+"/"+configuration.Name) {
		c.queue.Add(key{name: c.pool(instance)})
	}
}

func (c *controller) nodeChanged(name string) {
	c.queue.Add(rootKey)
	for _, instance := range c.Cache.Instances.ByIndex(byNode, name) {
		c.queue.Add(key{name: c.pool(instance)})
	}
}

// rootChanged reconciles all objects.
func (c *controller) rootChanged() {
	c.queue.Add(rootKey)
	for _, configuration := range c.Cache.Configurations.List() {
		c.configurationChanged(configuration)
	}
	for _, instance := range c.Cache.Instances.List() {
		c.instanceChanged(nil, instance)
	}
}

func (c *controller) reconcileOnce(ctx context.Context, item key) {
	if !c.expectations.Satisfied(item.String()) {
		c.queue.AddAfter(item, kube.ExpectationRecheck)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := c.reconcile(ctx, item)
	if err == nil {
		c.queue.Forget(item)
		return
	}
	level := zap.WarnLevel
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
		level = zap.DebugLevel // the cache is older than the object
	}
	c.Log.Log(level, "writing an object failed, retrying", zap.String("name", item.name), zap.Error(err))
	c.queue.AddRateLimited(item)
}

// reconcile writes nothing while the DeviceClass for all devices does not exist: the garbage
// collector then removes all other objects.
func (c *controller) reconcile(ctx context.Context, item key) error {
	if item == rootKey {
		return c.reconcileRoot(ctx)
	}
	owner, exists := c.Cache.Root.Get(akriv0.Driver)
	if !exists {
		return nil
	}
	switch {
	case item.isClass && item.again:
		c.writeAgain(item.name)
		return nil
	case item.isClass:
		return c.reconcileClass(ctx, item.name, desired.Owner(owner))
	default:
		return c.reconcilePool(ctx, item.name, item.again, desired.Owner(owner))
	}
}

// addAgain adds the item, with again, after the delay or up to a second later. The queue keeps only
// the earliest time of equal items, but a write must follow each event. So items that are due in
// different seconds differ.
func (c *controller) addAgain(item key, delay time.Duration) {
	now := time.Now()
	due := now.Add(delay).Truncate(time.Second).Add(time.Second)
	item.again, item.due = true, due.Unix()
	c.queue.AddAfter(item, due.Sub(now))
}

// writeAgain writes one slice of a pool of the class again. The scheduler then retries all Pods.
func (c *controller) writeAgain(class string) {
	name := akriv0.ResourceOfClass(class)
	instances := c.Cache.Instances.ByIndex(byName, name)
	for _, configuration := range c.Cache.Configurations.ByIndex(byName, name) {
		instances = append(instances, c.Cache.Instances.ByIndex(byConfiguration, configuration.Namespace+"/"+name)...)
	}
	if len(instances) > 0 {
		c.queue.Add(key{name: c.pool(instances[0]), again: true})
	}
}

func (c *controller) reconcileClass(ctx context.Context, name string, owner metav1.OwnerReference) error {
	wanted := c.class(akriv0.ResourceOfClass(name), owner)
	current, exists := c.Cache.Classes.Get(name)
	switch {
	case wanted == nil && !exists:
		return nil
	case wanted == nil:
		return c.classes.remove(ctx, current)
	case !exists:
		_, err := c.classes.create(ctx, wanted)
		return err
	case sameMetadata(current, wanted) && equality.Semantic.DeepEqual(current.Spec, wanted.Spec):
		return nil
	default:
		_, err := c.classes.update(ctx, current, wanted)
		return err
	}
}

// class returns the DeviceClass of the Configuration or Instance of that name, in any namespace.
func (c *controller) class(name string, owner metav1.OwnerReference) *resourcev1.DeviceClass {
	switch {
	case len(c.Cache.Configurations.ByIndex(byName, name)) > 0:
		return c.features.ConfigurationClass(name, owner)
	case len(c.Cache.Instances.ByIndex(byName, name)) > 0:
		return c.features.InstanceClass(name, owner)
	default:
		return nil
	}
}

func sameMetadata(current, wanted metav1.Object) bool {
	return current.GetLabels()[desired.LabelManagedBy] == desired.ManagedBy &&
		equality.Semantic.DeepEqual(current.GetOwnerReferences(), wanted.GetOwnerReferences())
}
