package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

// reconcileInstance says after how long to look again although nothing changed; zero: not at all.
func (c *Controller) reconcileInstance(ctx context.Context, key string) (time.Duration, error) {
	instance, there := c.Cache.Instances.Get(key)
	if !there || instance.DeletionTimestamp != nil {
		return 0, c.removeBrokers(ctx, key)
	}
	configuration, there := c.Cache.Configurations.Get(cluster.Key(instance.Namespace, instance.Spec.ConfigurationName))
	if !there || configuration.DeletionTimestamp != nil {
		return 0, nil // Kubernetes removes the Instance, and with it what it owns
	}
	if malformed := configuration.Spec.Malformed; len(malformed) > 0 {
		// What the user means is not known, so what is there stays.
		err := fmt.Errorf("%w: %s", errRefused, strings.Join(malformed, "; "))
		c.sayRefused(instance, configuration, "BrokerRefused", err)
		return 0, err
	}
	again, podsErr := c.reconcilePods(ctx, instance, configuration)
	jobErr := c.reconcileJob(ctx, instance, configuration)
	serviceErr := c.reconcileInstanceService(ctx, instance, configuration)
	c.sayRefused(instance, configuration, "BrokerRefused", errors.Join(podsErr, jobErr))
	c.sayRefused(instance, configuration, "ServiceRefused", serviceErr)
	return again, errors.Join(podsErr, jobErr, serviceErr)
}

// sayRefused tells who looks at the device and who wrote the spec.
func (c *Controller) sayRefused(instance *akriv0.Instance, configuration *akriv0.Configuration, reason string, err error) {
	if Refused(err) {
		c.Events.Warning(cluster.InstanceReference(instance), reason, err.Error())
		c.Events.Warning(cluster.ConfigurationReference(configuration), reason, err.Error())
	}
}

// removeBrokers removes what a gone Instance left behind. Kubernetes does so too, later.
func (c *Controller) removeBrokers(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("split key: %w", err)
	}
	left := c.leftOf(namespace, name)
	if len(left) == 0 {
		return nil
	}
	// A new Instance can be behind its brokers in the cache, when another leader has made them.
	instance, err := c.Clients.Instances.In(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get Instance: %w", err)
	}
	if err == nil && instance.DeletionTimestamp == nil {
		return nil // its event is on the way
	}
	var problems []error
	for _, remove := range left {
		problems = append(problems, remove(ctx))
	}
	return errors.Join(problems...)
}

// leftOf returns how to remove each object that was made for the Instance.
func (c *Controller) leftOf(namespace, name string) (removals []func(context.Context) error) {
	left := func(object metav1.Object, remove func(context.Context, metav1.Object, *int64) error) {
		if ownedBy(object, name) && object.GetDeletionTimestamp() == nil {
			removals = append(removals, func(ctx context.Context) error { return remove(ctx, object, nil) })
		}
	}
	key := cluster.Key(namespace, name)
	for _, pod := range c.Cache.PodsOfInstance(namespace, name) {
		left(pod, c.pods(key).remove)
	}
	for _, job := range c.Cache.JobsOfInstance(namespace, name) {
		left(job, c.jobs(key).remove)
	}
	if service, there := c.Cache.Services.Get(cluster.Key(namespace, render.ServiceName(name))); there {
		left(service, c.services(key).remove)
	}
	return removals
}

// ownedBy says whether the object was made for the Instance of that name, this one or an earlier
// one.
func ownedBy(object metav1.Object, instance string) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && cluster.IsInstance(owner) && owner.Name == instance
}

// podBroker is what the user says of broker Pods, or nil.
func podBroker(configuration *akriv0.Configuration) *akriv0.BrokerSpec {
	if broker := configuration.Spec.BrokerSpec; broker != nil && broker.BrokerPodSpec != nil {
		return broker
	}
	return nil
}

// expectsBroker says whether a broker of the Instance should be running, or will be.
func (c *Controller) expectsBroker(instance *akriv0.Instance, configuration *akriv0.Configuration) bool {
	return expectsPods(instance, configuration) || c.expectsJob(instance, configuration)
}

// expectsJob says whether a Job is due, or there and not finished: then it makes another Pod when
// its own fails.
func (c *Controller) expectsJob(instance *akriv0.Instance, configuration *akriv0.Configuration) bool {
	spec := jobSpec(configuration)
	if spec == nil || instance.DeletionTimestamp != nil {
		return false
	}
	hash := render.Hash(spec)
	return !slices.ContainsFunc(c.Cache.JobsOfInstance(instance.Namespace, instance.Name), func(job *batchv1.Job) bool {
		made := job.Annotations[render.AnnotationSpecHash]
		return job.DeletionTimestamp == nil && (made == "" || made == hash) && finished(job)
	})
}

func finished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed)
	})
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// expectsPods says whether the Instance should have a broker Pod somewhere.
func expectsPods(instance *akriv0.Instance, configuration *akriv0.Configuration) bool {
	return podBroker(configuration) != nil && instance.DeletionTimestamp == nil &&
		instance.Spec.Capacity > 0 && len(instance.Spec.Nodes) > 0
}

// countBrokers leaves out those on their way out: on a node that is lost they stay so for ever.
func countBrokers(pods []*corev1.Pod, coming bool) plan.Brokers {
	brokers := plan.Brokers{Coming: coming}
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil, ended(pod):
			continue
		case pod.Status.Phase == corev1.PodRunning:
			brokers.Running++
		}
		brokers.Left++
	}
	return brokers
}
