package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

// rolloutRetry is when to check again whether an outdated broker may be replaced.
const rolloutRetry = 2 * time.Second

func (c *Controller) reconcilePods(
	ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration,
) (time.Duration, error) {
	now := time.Now()
	pods := map[string]*corev1.Pod{}
	var existing []plan.Pod
	for _, pod := range c.Cache.PodsOfInstance(instance.Namespace, instance.Name) {
		if ownedBy(pod, instance.Name) {
			pods[pod.Name] = pod
			planned := planPod(pod, instance, c.sightings.of(pod, now))
			var err error
			if planned.WithoutDevice, err = c.withoutDevice(ctx, pod); err != nil {
				return 0, err
			}
			existing = append(existing, planned)
			if pod.Status.Phase == corev1.PodRunning {
				c.startFailures.started(cluster.Key(instance.Namespace, instance.Name), pod.Name)
			}
		}
	}
	desired := c.desiredPods(instance, podBroker(configuration))
	changes := plan.ForPods(now, desired, existing)
	if changes.UpdatePending {
		if c.rollout.tryStart(c.Cache, instance, configuration, now) {
			desired.MayUpdate = true
			changes = plan.ForPods(now, desired, existing)
		}
		if changes.RequeueAfter == 0 || changes.RequeueAfter > rolloutRetry {
			changes.RequeueAfter = rolloutRetry
		}
	}
	return changes.RequeueAfter, c.applyPods(ctx, instance, configuration, changes, pods)
}

func (c *Controller) desiredPods(instance *akriv0.Instance, broker *akriv0.BrokerSpec) plan.Desired {
	desired := plan.Desired{
		Nodes: map[string]string{}, Capacity: int(instance.Spec.Capacity), StuckAfter: c.StuckAfter, StartTimeout: c.StartTimeout,
	}
	if broker == nil {
		return desired
	}
	desired.Hash = render.PodHash(broker)
	desired.Failures = c.startFailures.of(cluster.Key(instance.Namespace, instance.Name), desired.Hash)
	for _, node := range instance.Spec.Nodes {
		desired.Nodes[render.PodName(instance, node)] = node
	}
	return desired
}

func planPod(pod *corev1.Pod, instance *akriv0.Instance, times plan.Times) plan.Pod {
	return plan.Pod{
		Times:    times,
		Name:     pod.Name,
		Phase:    pod.Status.Phase,
		Deleting: pod.DeletionTimestamp != nil,
		Foreign:  !metav1.IsControlledBy(pod, instance),
		Hash:     pod.Annotations[render.AnnotationSpecHash],
		Attempt:  render.Attempt(pod),
		Blocked:  blocked(pod),
	}
}

// applyPods makes all changes, also after an error: a failure on one node must not affect the
// others.
func (c *Controller) applyPods(
	ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration,
	changes plan.Pods, pods map[string]*corev1.Pod,
) error {
	writer := c.podWriter(cluster.Key(instance.Namespace, instance.Name))
	reference := cluster.Reference("Instance", instance)
	var errs []error
	failed := map[string]bool{}
	for _, deletion := range changes.Delete {
		pod := pods[deletion.Name]
		c.beforeDelete(instance, configuration, pod, deletion.Reason)
		var grace *int64 // nil for the grace period of the Pod
		if deletion.Force {
			grace = new(int64)
		}
		if err := writer.delete(ctx, pod, grace); err != nil {
			errs, failed[deletion.Name] = append(errs, err), true
			continue
		}
		c.Events.Event(reference, corev1.EventTypeNormal, "BrokerRemoved", c.removedMessage(deletion))
	}
	for _, creation := range changes.Create {
		if failed[creation.Name] {
			continue
		}
		created, err := writer.create(ctx, render.Pod(instance, creation.Node, podBroker(configuration), creation.Attempt))
		if err != nil {
			errs = append(errs, err)
		}
		if created {
			c.rollout.created(configuration, instance, creation.Name)
			c.Events.Eventf(reference, corev1.EventTypeNormal, "BrokerCreated", "Created Pod %s for node %s.", creation.Name, creation.Node)
		}
	}
	return errors.Join(errs...)
}

// beforeDelete records why a Pod is deleted, before the cache can show that it is gone.
func (c *Controller) beforeDelete(
	instance *akriv0.Instance, configuration *akriv0.Configuration, pod *corev1.Pod, reason plan.Reason,
) {
	switch reason {
	case plan.Outdated:
		c.rollout.replacing(configuration, instance, pod)
	case plan.Moved, plan.Stuck:
		key, hash := cluster.Key(instance.Namespace, instance.Name), render.PodHash(podBroker(configuration))
		c.startFailures.add(key, hash, pod, time.Now())
		c.rollout.moved(configuration, instance, pod.Name)
	}
}

// removedMessage returns the message of the Event for a deleted Pod.
func (c *Controller) removedMessage(deletion plan.Deletion) string {
	switch deletion.Reason {
	case plan.Ended:
		return fmt.Sprintf("Replaced Pod %s: it had ended.", deletion.Name)
	case plan.Stuck:
		return fmt.Sprintf("Replaced Pod %s: it had not started within %s.", deletion.Name, duration.HumanDuration(c.StuckAfter))
	case plan.Moved:
		return fmt.Sprintf("Removed Pod %s: it could not start on its node within %s. Another node gets a broker.",
			deletion.Name, duration.HumanDuration(c.StartTimeout))
	case plan.Outdated:
		return fmt.Sprintf("Replaced Pod %s: the broker spec changed.", deletion.Name)
	case plan.WithoutDevice:
		return fmt.Sprintf("Replaced Pod %s: the scheduler had bound it without its device.", deletion.Name)
	default:
		return fmt.Sprintf("Removed Pod %s: no longer needed.", deletion.Name)
	}
}

// podBroker returns the broker spec if it has a Pod, else nil.
func podBroker(configuration *akriv0.Configuration) *akriv0.BrokerSpec {
	if broker := configuration.Spec.BrokerSpec; broker != nil && broker.BrokerPodSpec != nil {
		return broker
	}
	return nil
}

// expectsPods reports whether the Instance should have a broker Pod.
func expectsPods(instance *akriv0.Instance, configuration *akriv0.Configuration) bool {
	return podBroker(configuration) != nil && instance.DeletionTimestamp == nil &&
		instance.Spec.Capacity > 0 && len(instance.Spec.Nodes) > 0
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}
