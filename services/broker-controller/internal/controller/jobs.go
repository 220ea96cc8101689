package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

func (c *Controller) reconcileJob(ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration) error {
	spec := jobSpec(configuration)
	jobs := map[string]*batchv1.Job{}
	var there []plan.Job
	for _, job := range c.Cache.JobsOfInstance(instance.Namespace, instance.Name) {
		if ownedBy(job, instance.Name) {
			jobs[job.Name] = job
			there = append(there, plan.Job{
				Name:     job.Name,
				Deleting: job.DeletionTimestamp != nil,
				Foreign:  job.OwnerReferences[0].UID != instance.UID,
				Hash:     job.Annotations[render.AnnotationSpecHash],
			})
		}
	}
	var hash string
	if spec != nil {
		hash = render.Hash(spec)
	}
	remove, create := plan.ForJobs(spec != nil, hash, there)
	about := cluster.InstanceReference(instance)
	writer := c.jobs(cluster.Key(instance.Namespace, instance.Name))
	var problems []error
	for _, name := range remove {
		if err := writer.remove(ctx, jobs[name], nil); err != nil {
			problems = append(problems, err)
			continue
		}
		c.Events.Normal(about, "BrokerRemoved", fmt.Sprintf("Removed Job %s: %s.", name, plan.Unwanted))
	}
	if create && !c.brokersLeft(instance) {
		problems = append(problems, c.createJob(ctx, instance, configuration.Generation, spec, hash))
	}
	return errors.Join(problems...)
}

// brokersLeft says whether Pods of former brokers still hold the device: until they have ended the
// kubelet may refuse a new one, which counts as a failure of its Job. Those on nodes that lost the
// device hold nothing.
func (c *Controller) brokersLeft(instance *akriv0.Instance) bool {
	return slices.ContainsFunc(c.Cache.PodsOfInstance(instance.Namespace, instance.Name), func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOf(pod)
		return owner != nil && (cluster.IsInstance(owner) || owner.Kind == "Job") && !ended(pod) &&
			(pod.Spec.NodeName == "" || slices.Contains(instance.Spec.Nodes, pod.Spec.NodeName))
	})
}

// createJob asks the API server first: the cache may not show yet a Job that this or an earlier
// leader made for another generation of the Configuration, and a Job must not run twice.
func (c *Controller) createJob(
	ctx context.Context, instance *akriv0.Instance, generation int64, spec *batchv1.JobSpec, hash string,
) error {
	selector := labels.Set{render.LabelController: akriv0.Group, render.LabelInstance: render.LabelValue(instance.Name)}
	jobs, err := c.Clients.Jobs.In(instance.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if metav1.IsControlledBy(job, instance) && job.DeletionTimestamp == nil && job.Annotations[render.AnnotationSpecHash] == hash {
			return nil
		}
	}
	job := render.Job(instance, generation, spec)
	made, err := c.jobs(cluster.Key(instance.Namespace, instance.Name)).create(ctx, job)
	if made {
		c.Events.Normal(cluster.InstanceReference(instance), "BrokerCreated", fmt.Sprintf("Created Job %s.", job.Name))
	}
	return err
}

func jobSpec(configuration *akriv0.Configuration) *batchv1.JobSpec {
	if configuration.Spec.BrokerSpec == nil {
		return nil
	}
	return configuration.Spec.BrokerSpec.BrokerJobSpec
}
