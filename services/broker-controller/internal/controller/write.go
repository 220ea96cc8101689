package controller

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"akri.sh/libs/kube"
)

// errRefused: the API server will not have the object, and trying again soon is of no use.
var errRefused = errors.New("refused")

// writer writes objects of one kind on behalf of a key. Doing again what is done already is no
// error.
type writer[T kube.Object, L runtime.Object] struct {
	kind    string
	client  *kube.Client[T, L]
	written func(kind, verb string, err error)
	// now is told the version of the object that is there.
	now func(version string)
}

func newWriter[T kube.Object, L runtime.Object](
	c *Controller, key, kind string, client *kube.Client[T, L], cache *kube.Informer[T],
) writer[T, L] {
	now := func(version string) { c.fences.wrote(key, cache.GetStore(), version) }
	return writer[T, L]{kind, client, c.Written, now}
}

func (c *Controller) pods(key string) writer[*corev1.Pod, *corev1.PodList] {
	return newWriter(c, key, "Pod", c.Clients.Pods, c.Cache.Pods)
}

func (c *Controller) jobs(key string) writer[*batchv1.Job, *batchv1.JobList] {
	return newWriter(c, key, "Job", c.Clients.Jobs, c.Cache.Jobs)
}

func (c *Controller) services(key string) writer[*corev1.Service, *corev1.ServiceList] {
	return newWriter(c, key, "Service", c.Clients.Services, c.Cache.Services)
}

// create says whether it made the object; it is no error if the same owner has one of that name
// already.
func (w writer[T, L]) create(ctx context.Context, object T) (bool, error) {
	in := w.client.In(object.GetNamespace())
	made, err := in.Create(ctx, object, metav1.CreateOptions{})
	if err == nil {
		w.now(made.GetResourceVersion())
	}
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, w.done("create", object.GetName(), err)
	}
	there, err := in.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("get %s %q: %w", w.kind, object.GetName(), err)
	}
	if owner := metav1.GetControllerOf(there); owner == nil || owner.UID != object.GetOwnerReferences()[0].UID {
		return false, fmt.Errorf("create %s: %w: %q exists and belongs to somebody else", w.kind, errRefused, object.GetName())
	}
	w.now(there.GetResourceVersion())
	return false, nil
}

// update replaces the object.
func (w writer[T, L]) update(ctx context.Context, object T) error {
	updated, err := w.client.In(object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{})
	if err == nil {
		w.now(updated.GetResourceVersion())
	}
	return w.done("update", object.GetName(), err)
}

// remove deletes this very object, not one that took its name meanwhile, and leaves what it owns to
// be deleted after it.
func (w writer[T, L]) remove(ctx context.Context, object metav1.Object, graceSeconds *int64) error {
	uid, background := object.GetUID(), metav1.DeletePropagationBackground
	err := w.client.In(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{
		GracePeriodSeconds: graceSeconds,
		Preconditions:      &metav1.Preconditions{UID: &uid},
		PropagationPolicy:  &background,
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return w.done("delete", object.GetName(), err)
}

func (w writer[T, L]) done(verb, name string, err error) error {
	if err != nil {
		cause := err
		err = fmt.Errorf("%s %s %q: %w", verb, w.kind, name, cause)
		if apierrors.IsInvalid(cause) || apierrors.IsForbidden(cause) || apierrors.IsBadRequest(cause) {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
	}
	w.written(w.kind, verb, err)
	return err
}

// Refused says whether a write failed because the API server will not have the object.
func Refused(err error) bool { return errors.Is(err, errRefused) }
