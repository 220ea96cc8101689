package controller

import (
	"context"
	"fmt"
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

func (c *Controller) reconcileInstanceService(ctx context.Context, instance *akriv0.Instance, configuration *akriv0.Configuration) error {
	brokers := countBrokers(c.Cache.PodsOfInstance(instance.Namespace, instance.Name), c.expectsBroker(instance, configuration))
	var wanted *corev1.Service
	if spec := configuration.Spec.InstanceServiceSpec; spec != nil {
		wanted = render.InstanceService(instance, spec)
	}
	return c.reconcileService(ctx, instance, cluster.InstanceReference(instance), wanted, brokers)
}

func (c *Controller) reconcileConfiguration(ctx context.Context, key string) (time.Duration, error) {
	configuration, there := c.Cache.Configurations.Get(key)
	if !there {
		return 0, nil
	}
	if err := c.freeConfiguration(ctx, configuration); err != nil || configuration.DeletionTimestamp != nil {
		return 0, err // Kubernetes removes what it owns
	}
	if len(configuration.Spec.Malformed) > 0 {
		return 0, nil // said for its Instances
	}
	expecting := func(instance *akriv0.Instance) bool { return c.expectsBroker(instance, configuration) }
	coming := slices.ContainsFunc(c.Cache.InstancesOf(configuration.Namespace, configuration.Name), expecting)
	brokers := countBrokers(c.Cache.PodsOfConfiguration(configuration.Namespace, configuration.Name), coming)
	var wanted *corev1.Service
	if configuration.Spec.ConfigurationServiceSpec != nil {
		wanted = render.ConfigurationService(configuration)
	}
	about := cluster.ConfigurationReference(configuration)
	err := c.reconcileService(ctx, configuration, about, wanted, brokers)
	if Refused(err) {
		c.Events.Warning(about, "ServiceRefused", err.Error())
	}
	return 0, err
}

// reconcileService keeps the Service of an Instance or a Configuration; `wanted` is nil when the
// user asks for none.
func (c *Controller) reconcileService(
	ctx context.Context, owner metav1.Object, about *corev1.ObjectReference, wanted *corev1.Service, brokers plan.Brokers,
) error {
	writer := c.services(cluster.Key(about.Namespace, about.Name))
	there, exists := c.Cache.Services.Get(cluster.Key(owner.GetNamespace(), render.ServiceName(owner.GetName())))
	if exists && there.DeletionTimestamp == nil && formerly(there, about) {
		return writer.remove(ctx, there, nil)
	}
	exists = exists && there.DeletionTimestamp == nil && metav1.IsControlledBy(there, owner)
	var wantedHash, thereHash string
	if wanted != nil {
		wantedHash = wanted.Annotations[render.AnnotationSpecHash]
	}
	if exists {
		thereHash = there.Annotations[render.AnnotationSpecHash]
	}
	switch plan.ForObject(wanted != nil && plan.WantsService(exists, brokers), exists, wantedHash, thereHash) {
	case plan.Create:
		made, err := writer.create(ctx, wanted)
		if made {
			c.Events.Normal(about, "ServiceCreated", fmt.Sprintf("Created Service %s.", wanted.Name))
		}
		return err
	case plan.Replace:
		return c.replaceService(ctx, about, there, wanted)
	case plan.Remove:
		err := writer.remove(ctx, there, nil)
		if err == nil {
			c.Events.Normal(about, "ServiceRemoved", fmt.Sprintf("Removed Service %s.", there.Name))
		}
		return err
	}
	return nil
}

// formerly says whether the object was made for an earlier object of the same kind and name.
func formerly(object metav1.Object, about *corev1.ObjectReference) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.APIVersion == about.APIVersion && owner.Kind == about.Kind &&
		owner.Name == about.Name && owner.UID != about.UID
}

// replaceService keeps the address where it can. What cannot be changed in place, such as the
// address itself, is made anew: the removal comes back as a change.
func (c *Controller) replaceService(ctx context.Context, about *corev1.ObjectReference, there, wanted *corev1.Service) error {
	writer := c.services(cluster.Key(about.Namespace, about.Name))
	err := writer.update(ctx, wanted)
	if err == nil {
		c.Events.Normal(about, "ServiceUpdated", fmt.Sprintf("Updated Service %s.", wanted.Name))
		return nil
	}
	if !apierrors.IsInvalid(err) {
		return err
	}
	// Is it the change that is refused, or the new spec itself? Only the first is a reason to
	// remove what works.
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	probe := wanted.DeepCopy()
	probe.Name, probe.GenerateName = "", "akri-probe-"
	if _, refused := c.Clients.Services.In(wanted.Namespace).Create(ctx, probe, dry); refused != nil {
		return err
	}
	return writer.remove(ctx, there, nil)
}
