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
	existing := slices.DeleteFunc(c.Cache.JobsOfInstance(instance.Namespace, instance.Name), func(job *batchv1.Job) bool {
		return !ownedBy(job, instance.Name)
	})
	var hash string
	if spec != nil {
		hash = render.Hash(spec)
	}
	remove, create := plan.ForJobs(instance, hash, existing)
	writer := c.jobWriter(cluster.Key(instance.Namespace, instance.Name))
	var errs []error
	for _, job := range remove {
		if err := writer.delete(ctx, job, nil); err != nil {
			errs = append(errs, err)
			continue
		}
		c.Events.Eventf(cluster.Reference("Instance", instance), corev1.EventTypeNormal, "BrokerRemoved",
			"Removed Job %s: no longer needed.", job.Name)
	}

	errs = append(errs, c.deletePodsWithoutDevice(ctx, instance))
	if create && !c.deviceInUse(instance) {
		errs = append(errs, c.createJob(ctx, instance, configuration.Generation, spec, hash))
	}
	return errors.Join(errs...)
}

// deletePodsWithoutDevice deletes the Pods of Jobs that were bound without their device. Kubernetes
// replaces them, and counts each as a failure of the Job.
func (c *Controller) deletePodsWithoutDevice(ctx context.Context, instance *akriv0.Instance) error {
	var errs []error
	for _, pod := range c.Cache.PodsOfInstance(instance.Namespace, instance.Name) {
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "Job" {
			continue
		}

		without, err := c.withoutDevice(ctx, pod)
		if err == nil && without {
			deletion := plan.Deletion{Name: pod.Name, Reason: plan.WithoutDevice}
			if err = c.podWriter(cluster.Key(instance.Namespace, instance.Name)).delete(ctx, pod, new(int64)); err == nil {
				c.Events.Event(cluster.Reference("Instance", instance), corev1.EventTypeNormal, "BrokerRemoved", c.removedMessage(deletion))
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// deviceInUse reports whether Pods of previous brokers still use the device. Until they have ended,
// the kubelet can reject the Job's first Pod, which counts as a failure of the Job. Pods on nodes
// that lost the device do not count.
func (c *Controller) deviceInUse(instance *akriv0.Instance) bool {
	return slices.ContainsFunc(c.Cache.PodsOfInstance(instance.Namespace, instance.Name), func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOf(pod)
		return owner != nil && (cluster.IsInstance(owner) || owner.Kind == "Job") && !ended(pod) &&
			(pod.Spec.NodeName == "" || slices.Contains(instance.Spec.Nodes, pod.Spec.NodeName))
	})
}

// createJob lists the Jobs on the API server first, because a Job must not run twice. The cache may
// not contain a Job that this or an earlier leader created for another generation of the
// Configuration.
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
	created, err := c.jobWriter(cluster.Key(instance.Namespace, instance.Name)).create(ctx, job)
	if created {
		c.Events.Eventf(cluster.Reference("Instance", instance), corev1.EventTypeNormal, "BrokerCreated", "Created Job %s.", job.Name)
	}
	return err
}

// expectsJob reports whether a Job must be created or has not finished. An unfinished Job replaces
// Pods that fail.
func (c *Controller) expectsJob(instance *akriv0.Instance, configuration *akriv0.Configuration) bool {
	if jobSpec(configuration) == nil || instance.DeletionTimestamp != nil {
		return false
	}
	job := c.currentJob(instance, configuration)
	return job == nil || !finished(job)
}

// currentJob returns the Job with the spec of the Configuration, or nil.
func (c *Controller) currentJob(instance *akriv0.Instance, configuration *akriv0.Configuration) *batchv1.Job {
	hash := render.Hash(jobSpec(configuration))
	for _, job := range c.Cache.JobsOfInstance(instance.Namespace, instance.Name) {
		if plan.IsCurrent(job, instance, hash) {
			return job
		}
	}
	return nil
}

func finished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Status == corev1.ConditionTrue &&
			(condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed)
	})
}

// jobSpec returns the spec of broker Jobs, or nil.
func jobSpec(configuration *akriv0.Configuration) *batchv1.JobSpec {
	if configuration.Spec.BrokerSpec == nil {
		return nil
	}
	return configuration.Spec.BrokerSpec.BrokerJobSpec
}
