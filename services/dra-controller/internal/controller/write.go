package controller

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"akri.sh/libs/kube"
)

// writer writes the objects of one kind.
type writer[T kube.Object, L runtime.Object] struct {
	kind    string
	client  *kube.Client[T, L]
	onWrite func(kind, verb string, err error)
}

func (w writer[T, L]) create(ctx context.Context, object T) error {
	_, err := w.client.In(metav1.NamespaceNone).Create(ctx, object, metav1.CreateOptions{})
	w.onWrite(w.kind, "create", err)
	return err
}

// update replaces the current object. It fails if the object has changed since it was read.
func (w writer[T, L]) update(ctx context.Context, current, object T) error {
	object.SetResourceVersion(current.GetResourceVersion())
	_, err := w.client.In(metav1.NamespaceNone).Update(ctx, object, metav1.UpdateOptions{})
	w.onWrite(w.kind, "update", err)
	return err
}

func (w writer[T, L]) remove(ctx context.Context, current T) error {
	uid := current.GetUID()
	err := w.client.In(metav1.NamespaceNone).Delete(ctx, current.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if apierrors.IsNotFound(err) {
		return nil // the cache is older
	}
	w.onWrite(w.kind, "delete", err)
	return err
}
