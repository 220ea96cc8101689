package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"akri.sh/libs/kube"
)

// refusedError means that a retry fails until a user changes something. Its message is also shown
// in Events.
type refusedError struct {
	message string
	cause   error
}

func (e refusedError) Error() string { return e.message }

func (e refusedError) Unwrap() error { return e.cause }

// Refused reports whether the API server rejected an object, as opposed to a failure that a retry
// can fix.
func Refused(err error) bool {
	_, ok := errors.AsType[refusedError](err)
	return ok
}

// webhookFailed reports whether the API server could not call an admission webhook of the cluster.
// Unlike a refusal it is retried soon, but it can last until a user repairs the webhook.
func webhookFailed(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// onlyRefused reports whether the API server rejected all objects that a reconciliation could not
// write. If one failed for another reason, a retry can fix that one.
func onlyRefused(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyRefused(err) })
	}
	return Refused(err)
}

// writer writes objects of one kind for a key. Repeated writes are not errors.
type writer[T kube.Object, L runtime.Object] struct {
	kind    string
	client  *kube.Client[T, L]
	onWrite func(kind, verb string, err error)
	// expect is called with the version of the written object.
	expect func(version string)
}

func newWriter[T kube.Object, L runtime.Object](
	c *Controller, key, kind string, client *kube.Client[T, L], cache *kube.Informer[T],
) writer[T, L] {
	expect := func(version string) { c.expectations.Expect(key, cache.GetStore(), version) }
	return writer[T, L]{kind, client, c.OnWrite, expect}
}

func (c *Controller) podWriter(key string) writer[*corev1.Pod, *corev1.PodList] {
	return newWriter(c, key, "Pod", c.Clients.Pods, c.Cache.Pods)
}

func (c *Controller) jobWriter(key string) writer[*batchv1.Job, *batchv1.JobList] {
	return newWriter(c, key, "Job", c.Clients.Jobs, c.Cache.Jobs)
}

func (c *Controller) serviceWriter(key string) writer[*corev1.Service, *corev1.ServiceList] {
	return newWriter(c, key, "Service", c.Clients.Services, c.Cache.Services)
}

// create reports whether it created the object. It returns no error if the same owner already has
// an object of that name.
func (w writer[T, L]) create(ctx context.Context, object T) (bool, error) {
	objects := w.client.In(object.GetNamespace())
	created, err := objects.Create(ctx, object, metav1.CreateOptions{})
	if err == nil {
		w.expect(created.GetResourceVersion())
	}
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, w.done("create", object.GetName(), err)
	}
	existing, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("get %s %q: %w", w.kind, object.GetName(), err)
	}
	if owner := metav1.GetControllerOf(existing); owner == nil || owner.UID != object.GetOwnerReferences()[0].UID {
		return false, refusedError{message: fmt.Sprintf(
			"cannot create %s %q: the name is used by an object with another owner", w.kind, object.GetName())}
	}
	w.expect(existing.GetResourceVersion())
	return false, nil
}

// update replaces the object.
func (w writer[T, L]) update(ctx context.Context, object T) error {
	updated, err := w.client.In(object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{})
	if err == nil {
		w.expect(updated.GetResourceVersion())
	}
	return w.done("update", object.GetName(), err)
}

// delete deletes the object with this UID. Kubernetes deletes its dependents afterwards.
func (w writer[T, L]) delete(ctx context.Context, object metav1.Object, graceSeconds *int64) error {
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

// done reports a write and returns its error with context.
func (w writer[T, L]) done(verb, name string, err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		err = refusedError{message: fmt.Sprintf("Kubernetes refused to %s %s %q: %v", verb, w.kind, name, err), cause: err}
	} else if err != nil {
		err = fmt.Errorf("%s %s %q: %w", verb, w.kind, name, err)
	}
	w.onWrite(w.kind, verb, err)
	return err
}
