package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

func (c *Controller) reconcileInstanceService(
	ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration,
) error {
	brokers := countBrokers(c.Cache.PodsOfInstance(instance.Namespace, instance.Name), c.expectsBroker(instance, configuration))
	var desired *corev1.Service
	if configuration.Spec.InstanceServiceSpec != nil {
		desired = render.InstanceService(instance, &configuration.Spec)
	}
	return c.reconcileService(ctx, instance, cluster.Reference("Instance", instance), desired, brokers)
}

func (c *Controller) reconcileConfiguration(ctx context.Context, key string) (time.Duration, error) {
	configuration, ok := c.Cache.Configurations.Get(key)
	if !ok {
		return 0, nil
	}
	if err := c.removeAgentFinalizers(ctx, configuration); err != nil || configuration.DeletionTimestamp != nil {
		return 0, err // Kubernetes deletes the Service of a deleted Configuration
	}
	review, current, err := c.review(ctx, configuration)
	if err != nil || !current || review.refuses(configurationServicePart) {
		return 0, err
	}
	expectsBroker := func(instance *akriv0.Instance) bool { return c.expectsBroker(instance, configuration) }
	expected := slices.ContainsFunc(c.Cache.InstancesOf(configuration.Namespace, configuration.Name), expectsBroker)
	brokers := countBrokers(c.Cache.PodsOfConfiguration(configuration.Namespace, configuration.Name), expected)
	var desired *corev1.Service
	if configuration.Spec.ConfigurationServiceSpec != nil {
		desired = render.ConfigurationService(configuration)
	}
	reference := cluster.Reference("Configuration", configuration)
	err = c.reconcileService(ctx, configuration, reference, desired, brokers)
	if Refused(err) {
		c.Events.Event(reference, corev1.EventTypeWarning, "ServiceRefused", err.Error())
	}
	return 0, err
}

// reconcileService reconciles the Service of an Instance or a Configuration. desired is nil when
// the Configuration has no such Service.
func (c *Controller) reconcileService(
	ctx context.Context, owner metav1.Object, reference *corev1.ObjectReference, desired *corev1.Service, brokers plan.Brokers,
) error {
	writer := c.serviceWriter(cluster.Key(reference.Namespace, reference.Name))
	existing, exists := c.Cache.Services.Get(cluster.Key(owner.GetNamespace(), render.ServiceName(owner.GetName())))
	if exists && existing.DeletionTimestamp == nil && ownedByPredecessor(existing, reference) {
		return writer.delete(ctx, existing, nil)
	}
	exists = exists && existing.DeletionTimestamp == nil && metav1.IsControlledBy(existing, owner)
	var desiredHash, existingHash string
	if desired != nil {
		desiredHash = desired.Annotations[render.AnnotationSpecHash]
	}
	if exists {
		existingHash = existing.Annotations[render.AnnotationSpecHash]
	}
	switch plan.ForService(desired != nil && plan.NeedsService(exists, brokers), exists, desiredHash, existingHash) {
	case plan.Create:
		created, err := writer.create(ctx, desired)
		if created {
			c.Events.Eventf(reference, corev1.EventTypeNormal, "ServiceCreated", "Created Service %s.", desired.Name)
		}
		return err
	case plan.Replace:
		return c.replaceService(ctx, reference, existing, desired)
	case plan.Delete:
		err := writer.delete(ctx, existing, nil)
		if err == nil {
			c.Events.Eventf(reference, corev1.EventTypeNormal, "ServiceRemoved", "Removed Service %s.", existing.Name)
		}
		return err
	}
	return nil
}

// ownedByPredecessor reports whether the owner is an earlier object of the same kind and name.
func ownedByPredecessor(object metav1.Object, reference *corev1.ObjectReference) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.APIVersion == reference.APIVersion && owner.Kind == reference.Kind &&
		owner.Name == reference.Name && owner.UID != reference.UID
}

// replaceService updates the Service in place, which keeps its address. If an immutable field has
// changed, such as the address, it deletes the Service; the deletion triggers the creation of the
// new one.
func (c *Controller) replaceService(
	ctx context.Context, reference *corev1.ObjectReference, existing, desired *corev1.Service,
) error {
	writer := c.serviceWriter(cluster.Key(reference.Namespace, reference.Name))
	// The finalizers are those of others: without that of the cloud's controller, the load balancer
	// of a Service stays after it.
	desired.Finalizers, desired.ResourceVersion = existing.Finalizers, existing.ResourceVersion
	err := writer.update(ctx, desired)
	if err == nil {
		c.Events.Eventf(reference, corev1.EventTypeNormal, "ServiceUpdated", "Updated Service %s.", desired.Name)
		return nil
	}
	if !apierrors.IsInvalid(err) {
		return err
	}
	// A dry run shows whether the spec itself is invalid. If so, the working Service stays.
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	probe := desired.DeepCopy()
	probe.Name, probe.GenerateName, probe.ResourceVersion = "", "akri-probe-", ""
	if _, probeErr := c.Clients.Services.In(desired.Namespace).Create(ctx, probe, dryRun); probeErr != nil {
		return err
	}
	return writer.delete(ctx, existing, nil)
}

// countBrokers counts the Pods that a Service selects. Pods that are being deleted do not count: on
// a lost node their deletion does not finish.
func countBrokers(pods []*corev1.Pod, expected bool) plan.Brokers {
	brokers := plan.Brokers{Expected: expected}
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil, ended(pod):
			continue
		case pod.Status.Phase == corev1.PodRunning:
			brokers.Running++
		}
		brokers.Active++
	}
	return brokers
}
