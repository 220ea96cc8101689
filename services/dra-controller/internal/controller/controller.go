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
	Log   *zap.Logger
	// BindingTimeout is the time after which the scheduler gives up a claim that was deleted while
	// it bound the Pod.
	BindingTimeout time.Duration
	// OnWrite is called after each write to the API server.
	OnWrite func(kind, verb string, err error)
}

// key names an object to reconcile.
type key struct {
	isClass bool
	name    string
	// again means that a slice is written also if it does not differ. With a class it means one
	// slice of its devices.
	again bool
}

// String returns the key of the expectations.
func (k key) String() string { return fmt.Sprint(k.isClass, "/", k.name) }

type controller struct {
	Options
	features     desired.Features
	queue        workqueue.TypedRateLimitingInterface[key]
	expectations *kube.Expectations
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
	c.classes, c.slices = c.classWriter(), c.sliceWriter()
	if err := c.awaitFeatures(ctx); err != nil {
		return // ctx ended
	}
	c.subscribe()
	kube.Work(ctx, c.queue, workers, c.reconcileOnce)
}

// subscribe fills the queue, at first with all objects. The handlers stay, because the cache stops
// with the controller.
func (c *controller) subscribe() {
	c.Cache.Instances.OnEvent(func(before, after *akriv0.Instance) { c.instanceChanged(cmp.Or(after, before)) })
	c.Cache.Configurations.OnEvent(func(before, after *akriv0.Configuration) { c.configurationChanged(cmp.Or(after, before)) })
	c.Cache.Nodes.OnEvent(func(before, after *corev1.Node) {
		if before == nil || after == nil || !maps.Equal(before.Labels, after.Labels) {
			c.nodeChanged(cmp.Or(after, before).Name)
		}
	})
	c.Cache.Classes.OnChange(func(name string) { c.queue.Add(key{isClass: true, name: name}) })
	c.Cache.Slices.OnChange(func(name string) { c.queue.Add(key{name: name}) })
	c.Cache.Owner.OnChange(func(string) { c.ownerChanged() })
	claims := seenClaims{}
	c.Cache.Claims.OnEvent(func(before, after *resourcev1.ResourceClaim) {
		switch {
		case after == nil:
			c.claimDeleted(before, claims.remove(before))
		case claims.add(after):
			c.claimAllocated(after)
		}
	})
}

func (c *controller) instanceChanged(instance *akriv0.Instance) {
	c.queue.Add(key{name: desired.SliceName(instance.Namespace, instance.Name)})
	c.queue.Add(key{isClass: true, name: desired.ClassName(instance.Name)})
}

func (c *controller) configurationChanged(configuration *akriv0.Configuration) {
	c.queue.Add(key{isClass: true, name: desired.ClassName(configuration.Name)})
	for _, instance := range c.Cache.Instances.ByIndex(byConfiguration, configuration.Namespace+"/"+configuration.Name) {
		c.queue.Add(key{name: desired.SliceName(instance.Namespace, instance.Name)})
	}
}

func (c *controller) nodeChanged(name string) {
	for _, instance := range c.Cache.Instances.ByIndex(byNode, name) {
		c.queue.Add(key{name: desired.SliceName(instance.Namespace, instance.Name)})
	}
}

func (c *controller) ownerChanged() {
	for _, configuration := range c.Cache.Configurations.List() {
		c.configurationChanged(configuration)
	}
	for _, instance := range c.Cache.Instances.List() {
		c.instanceChanged(instance)
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

// reconcile writes nothing while the DeviceClass of the chart does not exist: the garbage collector
// then removes all other objects.
func (c *controller) reconcile(ctx context.Context, item key) error {
	owner, exists := c.Cache.Owner.Get(akriv0.Driver)
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
		return c.reconcileSlice(ctx, item.name, item.again, desired.Owner(owner))
	}
}

// writeAgain writes one slice of the class again. The scheduler then retries all Pods.
func (c *controller) writeAgain(class string) {
	name := desired.ResourceOfClass(class)
	instances := c.Cache.Instances.ByIndex(byName, name)
	for _, configuration := range c.Cache.Configurations.ByIndex(byName, name) {
		instances = append(instances, c.Cache.Instances.ByIndex(byConfiguration, configuration.Namespace+"/"+name)...)
	}
	if len(instances) > 0 {
		c.queue.Add(key{name: desired.SliceName(instances[0].Namespace, instances[0].Name), again: true})
	}
}

func (c *controller) reconcileClass(ctx context.Context, name string, owner metav1.OwnerReference) error {
	wanted := c.class(desired.ResourceOfClass(name), owner)
	current, exists := c.Cache.Classes.Get(name)
	switch {
	case wanted == nil && !exists:
		return nil
	case wanted == nil:
		return c.classes.remove(ctx, current)
	case !exists:
		return c.classes.create(ctx, wanted)
	case sameMetadata(current, wanted) && equality.Semantic.DeepEqual(current.Spec, wanted.Spec):
		return nil
	default:
		return c.classes.update(ctx, current, wanted)
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

func (c *controller) reconcileSlice(ctx context.Context, name string, again bool, owner metav1.OwnerReference) error {
	wanted := c.slice(name, owner)
	current, exists := c.Cache.Slices.Get(name)
	switch {
	case wanted == nil && !exists:
		return nil
	case wanted == nil && c.evictsPods(current):
		return c.reconcileLost(ctx, current)
	case wanted == nil:
		return c.slices.remove(ctx, current)
	case !exists:
		return c.slices.create(ctx, wanted)
	}
	// Consumers use the slices of a pool with the highest generation.
	generation := current.Spec.Pool.Generation
	wanted.Spec.Pool.Generation = generation
	switch {
	case !again && sameMetadata(current, wanted) && equality.Semantic.DeepEqual(current.Spec, wanted.Spec):
		return nil
	case immutable(current.Spec) != immutable(wanted.Spec):
		return c.slices.remove(ctx, current) // its event causes the creation
	default:
		wanted.Spec.Pool.Generation = generation + 1
		return c.slices.update(ctx, current, wanted)
	}
}

// evictsPods reports whether the slice is that of a device that was removed, and whose
// Configuration has its Pods evicted.
func (c *controller) evictsPods(slice *resourcev1.ResourceSlice) bool {
	namespace, instance := desired.InstanceOfSlice(slice.Name)
	configuration, exists := c.Cache.Configurations.Get(namespace + "/" + desired.ConfigurationOf(slice))
	_, isPresent := c.Cache.Instances.Get(namespace + "/" + instance)
	return exists && !isPresent && c.features.EvictsPods(configuration)
}

// reconcileLost taints the device, and removes the slice later.
func (c *controller) reconcileLost(ctx context.Context, current *resourcev1.ResourceSlice) error {
	wait, tainted := desired.LostWait(current)
	now := time.Now()
	switch {
	case !tainted:
		return c.slices.update(ctx, current, desired.Lost(current))
	case wait.Over(now):
		return c.slices.remove(ctx, current)
	default:
		c.queue.AddAfter(key{name: current.Name}, wait.Left(now))
		return nil
	}
}

// immutable returns the fields of a ResourceSlice that cannot be updated.
func immutable(spec resourcev1.ResourceSliceSpec) (fields struct{ pool, node string }) {
	fields.pool = spec.Pool.Name
	if spec.NodeName != nil {
		fields.node = *spec.NodeName
	}
	return fields
}

func (c *controller) slice(name string, owner metav1.OwnerReference) *resourcev1.ResourceSlice {
	namespace, instanceName := desired.InstanceOfSlice(name)
	instance, exists := c.Cache.Instances.Get(namespace + "/" + instanceName)
	if !exists {
		return nil
	}
	device := desired.Device{Instance: instance}
	device.Configuration, _ = c.Cache.Configurations.Get(namespace + "/" + instance.Spec.ConfigurationName)
	for _, nodeName := range instance.Spec.Nodes {
		if node, exists := c.Cache.Nodes.Get(nodeName); exists {
			device.Nodes = append(device.Nodes, node)
		}
	}
	return c.features.Slice(device, owner)
}

func sameMetadata(current, wanted metav1.Object) bool {
	return current.GetLabels()[desired.LabelManagedBy] == desired.ManagedBy &&
		equality.Semantic.DeepEqual(current.GetOwnerReferences(), wanted.GetOwnerReferences())
}
