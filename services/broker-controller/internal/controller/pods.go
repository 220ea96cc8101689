package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

// nextTurn is when to ask again whether an outdated broker may be replaced now.
const nextTurn = 2 * time.Second

func (c *Controller) reconcilePods(
	ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration,
) (time.Duration, error) {
	pods := map[string]*corev1.Pod{}
	var there []plan.Pod
	for _, pod := range c.Cache.PodsOfInstance(instance.Namespace, instance.Name) {
		if ownedBy(pod, instance.Name) {
			pods[pod.Name] = pod
			there = append(there, known(pod, instance))
		}
	}
	wanted := c.wantedPods(instance, podBroker(configuration))
	now := time.Now()
	todo := plan.ForPods(now, wanted, there)
	if todo.Waiting {
		if c.turns.take(c.Cache, instance, configuration, now, c.StuckAfter) {
			wanted.MayUpdate = true
			todo = plan.ForPods(now, wanted, there)
		}
		if todo.Again == 0 || todo.Again > nextTurn {
			todo.Again = nextTurn
		}
	}
	return todo.Again, c.applyPods(ctx, instance, configuration, todo, pods)
}

func (c *Controller) wantedPods(instance *akriv0.Instance, broker *akriv0.BrokerSpec) plan.Wanted {
	wanted := plan.Wanted{Pods: map[string]string{}, Capacity: int(instance.Spec.Capacity), StuckAfter: c.StuckAfter}
	if broker == nil {
		return wanted
	}
	wanted.Hash = render.PodHash(broker)
	for _, node := range instance.Spec.Nodes {
		wanted.Pods[render.PodName(instance, node)] = node
	}
	return wanted
}

func known(pod *corev1.Pod, instance *akriv0.Instance) plan.Pod {
	k := plan.Pod{
		Name:     pod.Name,
		Phase:    pod.Status.Phase,
		Created:  pod.CreationTimestamp.Time,
		Deleting: pod.DeletionTimestamp != nil,
		Foreign:  pod.OwnerReferences[0].UID != instance.UID,
		Hash:     pod.Annotations[render.AnnotationSpecHash],
		Attempt:  render.Attempt(pod),
	}
	if pod.Status.StartTime != nil {
		k.Started = pod.Status.StartTime.Time
	}
	return k
}

// applyPods goes on after an error: one node's trouble is not another's.
func (c *Controller) applyPods(
	ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration, todo plan.Pods, pods map[string]*corev1.Pod,
) error {
	writer := c.pods(cluster.Key(instance.Namespace, instance.Name))
	about := cluster.InstanceReference(instance)
	var problems []error
	blocked := map[string]bool{}
	for _, removal := range todo.Remove {
		pod := pods[removal.Name]
		if removal.Reason == plan.Outdated {
			c.turns.replacing(configuration, instance, pod)
		}
		if err := writer.remove(ctx, pod, grace(removal)); err != nil {
			problems, blocked[removal.Name] = append(problems, err), true
			continue
		}
		c.Events.Normal(about, "BrokerRemoved", fmt.Sprintf("Removed Pod %s: %s.", removal.Name, removal.Reason))
	}
	for _, creation := range todo.Create {
		if blocked[creation.Name] {
			continue
		}
		made, err := writer.create(ctx, render.Pod(instance, creation.Node, podBroker(configuration), creation.Attempt))
		if err != nil {
			problems = append(problems, err)
		}
		if made {
			c.Events.Normal(about, "BrokerCreated", fmt.Sprintf("Created Pod %s for node %s.", creation.Name, creation.Node))
		}
	}
	return errors.Join(problems...)
}

func grace(removal plan.Removal) *int64 {
	if !removal.Now {
		return nil // what the Pod asks for
	}
	return new(int64)
}
