package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/render"
)

func (c *Controller) reconcileInstance(ctx context.Context, key string) (time.Duration, error) {
	instance, ok := c.Cache.Instances.Get(key)
	if !ok || instance.DeletionTimestamp != nil {
		c.startFailures.remove(key)
		c.rollout.remove(key)
		c.recordRefusal(key, nil)
		return 0, c.deleteBrokers(ctx, key)
	}
	configuration, ok := c.Cache.Configurations.Get(cluster.Key(instance.Namespace, instance.Spec.ConfigurationName))
	if !ok || configuration.DeletionTimestamp != nil {
		return 0, nil // Kubernetes deletes the Instance and its dependents
	}
	review, current, err := c.review(ctx, configuration)
	if err != nil || !current {
		return 0, err
	}

	// The desired state of a part that is invalid is unknown, so existing objects stay.
	var requeueAfter time.Duration
	var brokerErr, serviceErr error
	if !review.refuses(brokerPart) {
		requeueAfter, brokerErr = c.reconcileBrokers(ctx, instance, configuration)
	}
	if !review.refuses(instanceServicePart) {
		serviceErr = c.reconcileInstanceService(ctx, instance, configuration)
	}

	c.recordRefusal(key, brokerErr)
	c.enqueueStatus(cluster.Key(configuration.Namespace, configuration.Name))
	c.warnRefused(instance, configuration, akriv0.ReasonBrokerRefused, brokerErr)
	c.warnRefused(instance, configuration, "ServiceRefused", serviceErr)
	return requeueAfter, errors.Join(brokerErr, serviceErr)
}

func (c *Controller) reconcileBrokers(
	ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration,
) (time.Duration, error) {
	if wait := c.untilPublished(instance, time.Now()); wait > 0 {
		return wait, nil
	}
	requeueAfter, podsErr := c.reconcilePods(ctx, instance, configuration)
	return requeueAfter, errors.Join(podsErr, c.reconcileJob(ctx, instance, configuration))
}

// warnRefused records a refusal on the Instance and on the Configuration that has the spec.
func (c *Controller) warnRefused(instance *akriv0.Instance, configuration *akriv0.Configuration, reason string, err error) {
	if Refused(err) {
		c.Events.Event(cluster.Reference("Instance", instance), corev1.EventTypeWarning, reason, err.Error())
		c.Events.Event(cluster.Reference("Configuration", configuration), corev1.EventTypeWarning, reason, err.Error())
	}
}

// deleteBrokers deletes the objects of a deleted Instance. Kubernetes' garbage collector does so
// too, later.
func (c *Controller) deleteBrokers(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("split key: %w", err)
	}
	deletions := c.deletionsFor(namespace, name)
	if len(deletions) == 0 {
		return nil
	}

	// The cache can contain brokers that another leader created before it contains their new
	// Instance.
	instance, err := c.Clients.Instances.In(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get Instance: %w", err)
	}
	if err == nil && instance.DeletionTimestamp == nil {
		return nil // the Instance arrives through the cache
	}

	var errs []error
	for _, remove := range deletions {
		errs = append(errs, remove(ctx))
	}
	return errors.Join(errs...)
}

// deletionsFor returns a function for each object of the Instance that deletes the object.
func (c *Controller) deletionsFor(namespace, name string) (deletions []func(context.Context) error) {
	add := func(object metav1.Object, remove func(context.Context, metav1.Object, *int64) error) {
		if ownedBy(object, name) && object.GetDeletionTimestamp() == nil {
			deletions = append(deletions, func(ctx context.Context) error { return remove(ctx, object, nil) })
		}
	}
	key := cluster.Key(namespace, name)
	for _, pod := range c.Cache.PodsOfInstance(namespace, name) {
		add(pod, c.podWriter(key).delete)
	}
	for _, job := range c.Cache.JobsOfInstance(namespace, name) {
		add(job, c.jobWriter(key).delete)
	}
	if service, ok := c.Cache.Services.Get(cluster.Key(namespace, render.ServiceName(name))); ok {
		add(service, c.serviceWriter(key).delete)
	}
	return deletions
}

// ownedBy reports whether the owner is an Instance of that name, the current one or an earlier one.
func ownedBy(object metav1.Object, instance string) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && cluster.IsInstance(owner) && owner.Name == instance
}

// expectsBroker reports whether a broker of the Instance runs or will run.
func (c *Controller) expectsBroker(instance *akriv0.Instance, configuration *akriv0.Configuration) bool {
	return expectsPods(instance, configuration) || c.expectsJob(instance, configuration)
}
