package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Informer caches the objects of one kind.
type Informer[T Object] struct {
	cache.SharedIndexInformer
}

// NewInformer returns an informer over all namespaces. It drops managedFields and, if trim is not
// nil, calls trim to drop other fields that are not needed. It has no resync period.
func NewInformer[T Object, L runtime.Object](client *Client[T, L], indexers cache.Indexers, trim func(T)) *Informer[T] {
	return NewSelectedInformer(client, metav1.NamespaceAll, metav1.ListOptions{}, indexers, trim)
}

// NewNamedInformer is NewInformer restricted to one object. The namespace is empty for
// cluster-scoped resources. It needs only rights on that object.
func NewNamedInformer[T Object, L runtime.Object](client *Client[T, L], namespace, name string) *Informer[T] {
	selected := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	return NewSelectedInformer(client, namespace, selected, nil, nil)
}

// NewSelectedInformer is NewInformer restricted to the objects of a namespace, or of all if it is
// empty, that match the selectors.
func NewSelectedInformer[T Object, L runtime.Object](
	client *Client[T, L], namespace string, selected metav1.ListOptions, indexers cache.Indexers, trim func(T),
) *Informer[T] {
	selectObjects := func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = selected.LabelSelector, selected.FieldSelector
	}
	objects := client.In(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			selectObjects(&options)
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			selectObjects(&options)
			return objects.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformer(source, client.newItem(), 0, indexers)
	err := informer.SetTransform(func(object any) (any, error) {
		item, ok := object.(T)
		if !ok {
			return object, nil // a tombstone
		}
		item.SetManagedFields(nil)
		if trim != nil {
			trim(item)
		}
		return item, nil
	})
	if err != nil {
		panic(err) // only if the informer has started
	}
	return &Informer[T]{informer}
}

// OnChange calls f with the namespace/name key of each object that is added, changed or deleted. f
// must not block.
func (i *Informer[T]) OnChange(f func(key string)) {
	notify := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			f(key)
		}
	}
	i.handle(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, object any) { notify(object) }, DeleteFunc: notify,
	})
}

// OnEvent calls f when an object is added (before is nil), changed or deleted (after is nil), one
// call after the other, until remove is called. f must not block.
func (i *Informer[T]) OnEvent(f func(before, after T)) (remove func()) {
	var none T
	return i.handle(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(after any) { f(none, after.(T)) },
		UpdateFunc: func(before, after any) { f(before.(T), after.(T)) },
		DeleteFunc: func(before any) {
			if unknown, ok := before.(cache.DeletedFinalStateUnknown); ok {
				before = unknown.Obj
			}
			f(before.(T), none)
		},
	})
}

func (i *Informer[T]) handle(handler cache.ResourceEventHandler) (remove func()) {
	registration, err := i.AddEventHandler(handler)
	if err != nil {
		return func() {} // the informer has stopped, so there are no events
	}
	return func() {
		if err := i.RemoveEventHandler(registration); err != nil {
			panic(err) // the registration is not one of the informer
		}
	}
}

// Get returns an object from the cache and whether it exists. Callers must not change it: DeepCopy
// first.
func (i *Informer[T]) Get(key string) (T, bool) {
	object, exists, err := i.GetStore().GetByKey(key)
	if err != nil || !exists {
		var none T
		return none, false
	}
	return object.(T), true
}

// List returns all cached objects in no particular order. Callers must not change them.
func (i *Informer[T]) List() []T {
	return typed[T](i.GetStore().List())
}

// ByIndex returns the cached objects with the value in the named index. Callers must not change
// them.
func (i *Informer[T]) ByIndex(name, value string) []T {
	objects, err := i.GetIndexer().ByIndex(name, value)
	if err != nil {
		panic(err) // the index was not declared
	}
	return typed[T](objects)
}

func typed[T any](objects []any) []T {
	items := make([]T, 0, len(objects))
	for _, object := range objects {
		items = append(items, object.(T))
	}
	return items
}

// Informers run together.
type Informers []cache.SharedIndexInformer

// Run keeps the caches up to date until ctx ends.
func (i Informers) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, informer := range i {
		group.Go(func() { informer.RunWithContext(ctx) })
	}
	group.Wait()
}

// HasSynced reports whether the first list of every kind has arrived.
func (i Informers) HasSynced() bool {
	return !slices.ContainsFunc(i, func(informer cache.SharedIndexInformer) bool { return !informer.HasSynced() })
}

// Synced returns a readiness check that fails until all informers hold a complete list.
func Synced(informers interface{ HasSynced() bool }) func(context.Context) error {
	return func(context.Context) error {
		if !informers.HasSynced() {
			return errors.New("not synced with the API server yet")
		}
		return nil
	}
}

// WaitForSync waits until all informers hold a complete list.
func WaitForSync(ctx context.Context, informers interface{ HasSynced() bool }) error {
	if !cache.WaitForCacheSync(ctx.Done(), informers.HasSynced) {
		return fmt.Errorf("wait for the first list from the API server: %w", context.Cause(ctx))
	}
	return nil
}
