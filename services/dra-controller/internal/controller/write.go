package controller

import (
	"context"
	"errors"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"akri.sh/libs/kube"
)

// errUnsupported is the error of a write that the API server has accepted without a field of a
// feature that an API server had when this process became the leader.
var errUnsupported = errors.New(
	"the API server dropped a field; all API servers must have the same version and feature gates, restart dra-controller when they do")

// writer writes the objects of one kind.
type writer[T kube.Object, L runtime.Object] struct {
	*controller
	kind   string
	client *kube.Client[T, L]
	cache  *kube.Informer[T]
	// complete reports whether a written object has all fields of the wanted one.
	complete func(written, wanted T) bool
}

type (
	classWriter = writer[*resourcev1.DeviceClass, *resourcev1.DeviceClassList]
	sliceWriter = writer[*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList]
)

func (c *controller) classWriter() classWriter {
	return classWriter{c, "DeviceClass", c.Cache.ClassClient, c.Cache.Classes, func(class, wanted *resourcev1.DeviceClass) bool {
		return (class.Spec.ExtendedResourceName == nil) == (wanted.Spec.ExtendedResourceName == nil)
	}}
}

// rootWriter writes the DeviceClass that owns all other objects.
func (c *controller) rootWriter() classWriter {
	return classWriter{c, "DeviceClass", c.Cache.ClassClient, c.Cache.Root, func(_, _ *resourcev1.DeviceClass) bool { return true }}
}

func (c *controller) sliceWriter() sliceWriter {
	return sliceWriter{c, "ResourceSlice", c.Cache.SliceClient, c.Cache.Slices, func(slice, wanted *resourcev1.ResourceSlice) bool {
		return slices.EqualFunc(slice.Spec.Devices, wanted.Spec.Devices, func(device, wanted resourcev1.Device) bool {
			return (device.AllowMultipleAllocations == nil) == (wanted.AllowMultipleAllocations == nil) &&
				len(device.Taints) == len(wanted.Taints)
		})
	}}
}

// key returns the key of the object, whose next reconciliation awaits the write in the cache.
func (w writer[T, L]) key(object T) key {
	if slice, isSlice := any(object).(*resourcev1.ResourceSlice); isSlice {
		return key{name: slice.Spec.Pool.Name}
	}
	return key{isClass: true, name: object.GetName()}
}

func (w writer[T, L]) create(ctx context.Context, object T) (T, error) {
	created, err := w.client.In(metav1.NamespaceNone).Create(ctx, object, metav1.CreateOptions{})
	return created, w.written("create", created, object, err)
}

func (w writer[T, L]) written(verb string, object, wanted T, err error) error {
	if err == nil {
		w.expectations.Expect(w.key(object).String(), w.cache.GetStore(), object.GetResourceVersion())
		if !w.complete(object, wanted) {
			err = errUnsupported
		}
	}
	w.OnWrite(w.kind, verb, err)
	return err
}

// update replaces the current object. It fails if the object has changed since it was read.
func (w writer[T, L]) update(ctx context.Context, current, object T) (T, error) {
	object.SetResourceVersion(current.GetResourceVersion())
	updated, err := w.client.In(metav1.NamespaceNone).Update(ctx, object, metav1.UpdateOptions{})
	return updated, w.written("update", updated, object, err)
}

func (w writer[T, L]) remove(ctx context.Context, current T) error {
	uid := current.GetUID()
	err := w.client.In(metav1.NamespaceNone).Delete(ctx, current.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if apierrors.IsNotFound(err) {
		return nil // the cache is older
	}
	w.OnWrite(w.kind, "delete", err)
	return err
}
