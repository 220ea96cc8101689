package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Cached returns the newest copy of the Instance at hand, or nil: what the watch brought, or what
// this process wrote since. It must not be changed.
func (c *Cluster) Cached(key types.NamespacedName) *akriv0.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, _ := c.instances.Get(key.String())
	written := c.written[key]
	if written == nil || !newer(written, watched) {
		return watched
	}
	return written
}

// Watched returns the copy that the watch brought, or nil. It must not be changed.
func (c *Cluster) Watched(key types.NamespacedName) *akriv0.Instance {
	watched, _ := c.instances.Get(key.String())
	return watched
}

// Revision is that of the API server up to which the watch has brought every change of an Instance;
// empty: not known.
func (c *Cluster) Revision() string { return c.instances.GetStore().LastStoreSyncResourceVersion() }

// newer tells whether a is younger than b, which may be nil.
func newer(a, b *akriv0.Instance) bool {
	if b == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// arrived forgets what was written once the watch has caught up.
func (c *Cluster) arrived(key string) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	of := types.NamespacedName{Namespace: namespace, Name: name}
	c.mu.Lock()
	defer c.mu.Unlock()
	watched, exists := c.instances.Get(key)
	if written := c.written[of]; written != nil && (!exists || !newer(written, watched)) {
		delete(c.written, of)
	}
}

func (c *Cluster) keep(instance *akriv0.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	instance.ManagedFields = nil
	key := Key(instance)
	if watched, _ := c.instances.Get(key.String()); newer(instance, watched) {
		c.written[key] = instance
	}
}

func (c *Cluster) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, key)
}

// Get reads the Instance from the API server; nil: there is none.
func (c *Cluster) Get(ctx context.Context, key types.NamespacedName) (*akriv0.Instance, error) {
	instance, err := c.instanceClient.In(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.forget(key)
		return nil, nil //nolint:nilnil // none is an answer
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
	if c.count("instance", err) != nil {
		return nil, fmt.Errorf("create Instance: %w", err)
	}
	c.keep(created)
	return created, nil
}

// untracked tells the API server to keep no record of who wrote which field: with a slot for each
// of many nodes it is as long as the Instance, and takes longer to compute than all else of a
// write. Nobody applies Instances.
var untracked = []metav1.ManagedFieldsEntry{{}}

// Update replaces the Instance if it is still the one that was read.
func (c *Cluster) Update(ctx context.Context, instance *akriv0.Instance) (*akriv0.Instance, error) {
	sent := *instance
	sent.ManagedFields = untracked
	updated, err := c.instanceClient.In(instance.Namespace).Update(ctx, &sent, metav1.UpdateOptions{})
	if c.count("instance", err) != nil {
		return nil, fmt.Errorf("update Instance: %w", err)
	}
	c.keep(updated)
	return updated, nil
}

// Delete deletes the Instance if it is still the one that was read.
func (c *Cluster) Delete(ctx context.Context, instance *akriv0.Instance) error {
	background := metav1.DeletePropagationBackground
	err := c.instanceClient.In(instance.Namespace).Delete(ctx, instance.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &instance.UID, ResourceVersion: &instance.ResourceVersion},
		PropagationPolicy: &background,
	})
	c.forget(Key(instance))
	if c.count("instance", err) != nil {
		return fmt.Errorf("delete Instance: %w", err)
	}
	return nil
}

func (c *Cluster) count(kind string, err error) error {
	result := "ok"
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	c.writes.WithLabelValues(kind, result).Inc()
	return err
}
