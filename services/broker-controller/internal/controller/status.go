package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
	"akri.sh/services/broker-controller/internal/cluster"
)

const (
	// statusInterval is the minimum time between two writes of the conditions of a Configuration.
	statusInterval = time.Second
	fieldManager   = "akri-broker-controller"
)

// observation is when the worker of the statuses has first seen a Pod or Job in its state. The
// timestamps of objects come from the clocks of other machines.
type observation struct {
	state    brokerState
	restarts int32
	since    time.Time
}

// recordRefusal records whether the API server rejects the brokers of an Instance.
func (c *Controller) recordRefusal(instance string, err error) {
	refused, ok := errors.AsType[refusedError](err)
	switch {
	case ok:
		c.refusals.Store(instance, refused.message)
	case webhookFailed(err):
		c.refusals.Store(instance, err.Error())
	default:
		c.refusals.Delete(instance)
	}
}

// enqueueStatus combines the changes within statusInterval.
func (c *Controller) enqueueStatus(configuration string) {
	c.statuses.AddAfter(configuration, statusInterval)
}

// reconcileStatus writes the conditions of this service if they have changed.
func (c *Controller) reconcileStatus(ctx context.Context, key string) (time.Duration, error) {
	configuration, ok := c.Cache.Configurations.Get(key)
	if !ok || configuration.DeletionTimestamp != nil {
		delete(c.observed, key)
		c.reviews.Delete(key)
		return 0, nil
	}
	review, current, err := c.review(ctx, configuration)
	if err != nil || !current {
		return 0, err
	}
	brokers, requeueAfter := c.brokersOf(configuration, review, time.Now())
	before := cluster.Own(configuration.Status.Conditions)
	conditions := slices.Clone(before)
	for _, condition := range append([]metav1.Condition{review.specValid(), brokers}, c.Verdicts.Conditions(key)...) {
		if condition.Reason == akriv0.ReasonStarting && meta.IsStatusConditionFalse(conditions, condition.Type) {
			continue // it stays False while brokers start, because they may fail again
		}
		condition.ObservedGeneration = configuration.Generation
		condition.Message = akriv0.Escape(condition.Message) // it can have text of a kubelet
		meta.SetStatusCondition(&conditions, condition)
	}
	if equality.Semantic.DeepEqual(conditions, before) {
		return requeueAfter, nil
	}
	return requeueAfter, c.applyConditions(ctx, configuration, conditions)
}

// applyConditions writes only these conditions: instance-writer writes the others.
func (c *Controller) applyConditions(ctx context.Context, configuration *akriv0.Configuration, conditions []metav1.Condition) error {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": akriv0.GroupVersion.String(), "kind": "Configuration",
		"metadata": map[string]any{"name": configuration.Name, "namespace": configuration.Namespace, "uid": configuration.UID},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force}
	client := c.Clients.Configurations.In(configuration.Namespace)
	applied, err := client.Patch(ctx, configuration.Name, types.ApplyPatchType, patch, options, "status")
	c.OnWrite("Configuration", "apply", err)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, perhaps created again; the change arrives through the cache
	}
	if err != nil {
		return fmt.Errorf("apply conditions: %w", err)
	}
	key := cluster.Key(configuration.Namespace, configuration.Name)
	c.expectations.Expect(key, c.Cache.Configurations.GetStore(), applied.ResourceVersion)
	c.recordConditions(configuration, conditions)
	return nil
}

// recordConditions creates an Event for each new problem and for each that has ended.
func (c *Controller) recordConditions(configuration *akriv0.Configuration, conditions []metav1.Condition) {
	for _, condition := range conditions {
		if condition.Type == akriv0.ConditionDevicesWorking || condition.Type == akriv0.ConditionBrokersWorking {
			continue // other conditions state the problem
		}
		previous := cmp.Or(meta.FindStatusCondition(configuration.Status.Conditions, condition.Type), &metav1.Condition{})
		failed := previous.Status == metav1.ConditionFalse
		eventType := corev1.EventTypeWarning
		switch {
		case condition.Status == metav1.ConditionFalse && previous.Reason != condition.Reason:
		case condition.Status == metav1.ConditionTrue && failed:
			eventType = corev1.EventTypeNormal
		default:
			continue
		}
		c.Events.Eventf(cluster.Reference("Configuration", configuration), eventType, condition.Reason,
			"%s is %s: %s", condition.Type, condition.Status, condition.Message)
	}
}

// brokersOf returns the condition of the brokers, and when it can change even if no object does.
func (c *Controller) brokersOf(
	configuration *akriv0.Configuration, review review, now time.Time,
) (condition metav1.Condition, requeueAfter time.Duration) {
	key := cluster.Key(configuration.Namespace, configuration.Name)
	condition = metav1.Condition{Type: akriv0.ConditionBrokersRunning}
	switch {
	case review.refuses(brokerPart):
		delete(c.observed, key)
		condition.Status, condition.Reason = metav1.ConditionUnknown, akriv0.ReasonInvalidSpec
		condition.Message = "no broker is created, because the spec is invalid; see SpecValid"
		return condition, 0
	case configuration.Spec.BrokerSpec == nil:
		delete(c.observed, key)
		condition.Status, condition.Reason = metav1.ConditionTrue, akriv0.ReasonNoBroker
		condition.Message = "the Configuration has no brokerSpec"
		return condition, 0
	}
	seen := observer{now: now, timeout: c.StartTimeout, previous: c.observed[key], current: map[types.UID]observation{}}
	var brokers []broker
	instances := c.Cache.InstancesOf(configuration.Namespace, configuration.Name)
	slices.SortFunc(instances, func(a, b *akriv0.Instance) int { return cmp.Compare(a.Name, b.Name) })
	for _, instance := range instances {
		if instance.DeletionTimestamp == nil {
			brokers = append(brokers, c.brokersOfInstance(instance, configuration, &seen)...)
		}
	}
	c.observed[key] = seen.current
	return brokersRunning(brokers), seen.next.At.Sub(now) // negative if there is none
}

// brokersOfInstance returns the brokers that the Instance should have.
func (c *Controller) brokersOfInstance(instance *akriv0.Instance, configuration *akriv0.Configuration, seen *observer) []broker {
	pods := c.Cache.PodsOfInstance(instance.Namespace, instance.Name)
	expected := min(int(instance.Spec.Capacity), len(instance.Spec.Nodes))
	var brokers []broker
	if jobSpec(configuration) != nil {
		expected = 1
		if job := c.currentJob(instance, configuration); job != nil {
			brokers = append(brokers, seen.settle(job.UID, 0, stateOfJob(job, pods)))
		}
	} else {
		for _, pod := range pods {
			if ownedBy(pod, instance.Name) {
				brokers = append(brokers, seen.settle(pod.UID, restarts(pod), stateOfPod(pod)))
			}
		}
	}
	missing := broker{state: replaced, name: instance.Name}
	if message, refused := c.refusals.Load(cluster.Key(instance.Namespace, instance.Name)); refused {
		missing.fail(akriv0.ReasonBrokerRefused, message.(string), retryByAkri)
	}
	for len(brokers) < expected {
		brokers = append(brokers, missing)
	}
	// Those beyond the expected number are being removed.
	slices.SortStableFunc(brokers, func(a, b broker) int { return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.name, b.name)) })
	return brokers[:expected]
}

func restarts(pod *corev1.Pod) (count int32) {
	for _, container := range pod.Status.ContainerStatuses {
		count += container.RestartCount
	}
	return count
}

// observer decides about states that last too long.
type observer struct {
	now               time.Time
	timeout           time.Duration
	previous, current map[types.UID]observation
	next              grace.Next
}

// settle returns a pending broker as failing, and a recovering one as running, if it has been in
// its state for the timeout.
func (o *observer) settle(uid types.UID, restarts int32, b broker) broker {
	seen := observation{state: b.state, restarts: restarts, since: o.now}
	if previous, ok := o.previous[uid]; ok && previous.state == seen.state && previous.restarts == restarts {
		seen.since = previous.since
	}
	o.current[uid] = seen

	wait := grace.Wait{Since: seen.since, For: o.timeout}
	switch b.state {
	case pending:
		wait.Awaited, wait.Then = "the broker starts", "it counts as failing"
	case recovering:
		wait.Awaited, wait.Then = "the broker does not end again", "it counts as running"
	default:
		return b
	}
	if !wait.Over(o.now) {
		o.next.Include(wait.Until())
		return b
	}

	if b.state == pending {
		b.state = failing
	} else {
		b.state = running
	}
	return b
}
