package cluster

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// InstancesOf returns the Instances of a Configuration.
func (c *Cluster) InstancesOf(configuration types.NamespacedName) []*akriv0.Instance {
	return c.Instances.ByIndex(byConfiguration, configuration.String())
}

// InstancesOn returns the Instances that list the node.
func (c *Cluster) InstancesOn(node string) []*akriv0.Instance {
	return c.Instances.ByIndex(byNode, node)
}

// InstancesHeldBy returns the Instances of which the node holds a slot.
func (c *Cluster) InstancesHeldBy(node string) []*akriv0.Instance {
	return c.Instances.ByIndex(byHolder, node)
}

// InstancesIn returns the Instances of the group, each as Cached does.
func (c *Cluster) InstancesIn(group Group) []*akriv0.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := sets.New(group.ShortName)
	for _, watched := range c.Instances.ByIndex(byGroup, group.String()) {
		names.Insert(watched.Name)
	}
	written, err := c.written.ByIndex(byGroup, group.String())
	if err != nil {
		panic(err) // the index was not declared
	}
	for _, object := range written {
		names.Insert(object.(ownWrite).Name)
	}
	var instances []*akriv0.Instance
	for name := range names {
		instance := c.cached(types.NamespacedName{Namespace: group.Configuration.Namespace, Name: name})
		if instance != nil && GroupOf(instance) == group {
			instances = append(instances, instance)
		}
	}
	return instances
}

// Cached returns the newer of the Instance that the watch delivered and the one that this process
// wrote. It returns nil if there is neither, or if this process deleted it.
func (c *Cluster) Cached(key types.NamespacedName) *akriv0.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cached(key)
}

// cached is called with mu held.
func (c *Cluster) cached(key types.NamespacedName) *akriv0.Instance {
	written, exists := c.lastWrite(key)
	switch {
	case !exists || !c.isAhead(written):
		return c.Watched(key)
	case written.deleted:
		return nil
	default:
		return written.Instance
	}
}

// ownWrite is a write of this process: the Instance that it wrote, or that it deleted.
type ownWrite struct {
	*akriv0.Instance
	deleted bool
}

// lastWrite is called with mu held.
func (c *Cluster) lastWrite(key types.NamespacedName) (written ownWrite, exists bool) {
	object, exists, _ := c.written.GetByKey(key.String())
	if exists {
		written = object.(ownWrite)
	}
	return written, exists
}

// Watched returns the Instance that the watch delivered, or nil.
func (c *Cluster) Watched(key types.NamespacedName) *akriv0.Instance {
	watched, _ := c.Instances.Get(key.String())
	return watched
}

// Revision returns the resourceVersion up to which the watch has delivered all changes of
// Instances. It is empty if unknown.
func (c *Cluster) Revision() string { return c.Instances.GetStore().LastStoreSyncResourceVersion() }

// newer reports whether a is newer than b.
func newer(a, b *akriv0.Instance) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// watched counts what the watch has delivered, and drops a write once that is the write or a later
// state. before or after may be those of an earlier Instance with the same name.
func (c *Cluster) watched(before, after *akriv0.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countUsage(before, after)
	if written, exists := c.lastWrite(Key(cmp.Or(after, before))); exists && !c.isAhead(written) {
		_ = c.written.Delete(written)
	}
}

// addWritten records a write, unless the watch has delivered it or a later state.
func (c *Cluster) addWritten(written ownWrite) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !written.deleted { // a deleted Instance can be that of the cache
		written.ManagedFields = nil
	}
	if c.isAhead(written) {
		_ = c.written.Add(written)
	}
}

// isAhead reports whether the watch has delivered neither the write nor a later state. The watch
// may not have delivered an Instance that was deleted yet.
func (c *Cluster) isAhead(written ownWrite) bool {
	revision := c.Revision() // not newer than the Instance
	watched := c.Watched(Key(written.Instance))
	if written.deleted && watched != nil && watched.ResourceVersion == written.ResourceVersion {
		return true // the version of the deletion is later
	}

	// After a restore of etcd, the Instance of a later revision can be older than the write.
	if order, err := resourceversion.CompareResourceVersion(revision, written.ResourceVersion); err == nil && order >= 0 {
		return false
	}
	return watched == nil || newer(written.Instance, watched)
}

// forgetWritten drops an Instance that this process wrote and that has changed since.
func (c *Cluster) forgetWritten(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if written, exists := c.lastWrite(key); exists && !written.deleted {
		_ = c.written.Delete(written)
	}
}

// Get reads the Instance from the API server. It returns nil if the Instance does not exist.
func (c *Cluster) Get(ctx context.Context, key types.NamespacedName) (*akriv0.Instance, error) {
	instance, err := c.instanceClient.In(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.forgetWritten(key)
		return nil, nil //nolint:nilnil // nil means that it does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("get Instance: %w", err)
	}
	instance.ManagedFields = nil
	return instance, nil
}

// Create creates the Instance.
func (c *Cluster) Create(ctx context.Context, instance *akriv0.Instance) (*akriv0.Instance, error) {
	created, err := c.instanceClient.In(instance.Namespace).Create(ctx, instance, metav1.CreateOptions{})
	c.countWrite("instance", err)
	if err != nil {
		return nil, fmt.Errorf("create Instance: %w", err)
	}
	c.addWritten(ownWrite{Instance: created})
	return created, nil
}

// noManagedFields makes the API server drop managedFields. With the slots of many nodes they are as
// long as the Instance and take most of the time of a write. Server-side apply is not used for
// Instances.
var noManagedFields = []metav1.ManagedFieldsEntry{{}}

// Update updates the Instance if it has not changed since it was read.
func (c *Cluster) Update(ctx context.Context, instance *akriv0.Instance) (*akriv0.Instance, error) {
	sent := *instance
	sent.ManagedFields = noManagedFields
	updated, err := c.instanceClient.In(instance.Namespace).Update(ctx, &sent, metav1.UpdateOptions{})
	c.countWrite("instance", err)
	if err != nil {
		return nil, fmt.Errorf("update Instance: %w", err)
	}
	c.addWritten(ownWrite{Instance: updated})
	return updated, nil
}

// Delete deletes the Instance if it has not changed since it was read.
func (c *Cluster) Delete(ctx context.Context, instance *akriv0.Instance) error {
	background := metav1.DeletePropagationBackground
	err := c.instanceClient.In(instance.Namespace).Delete(ctx, instance.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &instance.UID, ResourceVersion: &instance.ResourceVersion},
		PropagationPolicy: &background,
	})
	c.forgetWritten(Key(instance))
	c.countWrite("instance", err)
	if err != nil {
		return fmt.Errorf("delete Instance: %w", err)
	}
	c.addWritten(ownWrite{instance, true})
	return nil
}

// isConflict reports whether a write failed because the object has changed.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
