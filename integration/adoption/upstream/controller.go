package upstream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

// writes are the options of the writes of upstream's controller, which names no field manager.
var writes = metav1.CreateOptions{FieldManager: "unknown"}

// pendingGrace is the time after which a Pending broker is replaced when its Instance changes.
const pendingGrace = 5 * time.Minute

// Controller is a stand-in for upstream's controller.
type Controller struct {
	log            *zap.Logger
	kubernetes     kubernetes.Interface
	configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	instances      *kube.Informer[*akriv0.Instance]
	pods           *kube.Informer[*corev1.Pod]
	events         chan func(context.Context) error
}

// NewController returns a controller.
func NewController(config *rest.Config, log *zap.Logger) (c *Controller, err error) {
	c = &Controller{log: log, events: make(chan func(context.Context) error, 1000)}
	if c.kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	if c.configurations, err = kube.Configurations(config); err != nil {
		return nil, err
	}
	instances, err := kube.Instances(config)
	if err != nil {
		return nil, err
	}
	pods, err := kube.NewClient[corev1.Pod, corev1.PodList](config, corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, err
	}
	c.instances = kube.NewInformer(instances, nil, nil)
	c.pods = kube.NewSelectedInformer(pods, "", metav1.ListOptions{LabelSelector: configurationLabel}, nil, nil)
	return c, nil
}

// Run handles changes of Instances and brokers, one after the other, until ctx ends. An error ends
// it, as it ends upstream's controller.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	informers := kube.Informers{c.instances, c.pods}
	group.Go(func() error { informers.Run(ctx); return nil })
	c.instances.OnEvent(func(_, instance *akriv0.Instance) {
		if instance != nil {
			c.events <- func(ctx context.Context) error { return c.handleInstance(ctx, instance, true) }
		}
	})
	c.pods.OnEvent(func(before, after *corev1.Pod) {
		c.events <- func(ctx context.Context) error { return c.handlePod(ctx, before, after) }
	})
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case handle := <-c.events:
				if err := handle(ctx); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	})
	return group.Wait()
}

// handleInstance creates the brokers that are missing. jobs is set for an event of the Instance.
// The number of brokers is not limited to the capacity.
func (c *Controller) handleInstance(ctx context.Context, instance *akriv0.Instance, jobs bool) error {
	configuration, err := c.configurations.In(instance.Namespace).Get(ctx, instance.Spec.ConfigurationName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && configuration.Spec.BrokerSpec == nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Configuration: %w", err)
	}
	if configuration.Spec.BrokerSpec.BrokerJobSpec != nil {
		if !jobs {
			return nil
		}
		_, err := c.kubernetes.BatchV1().Jobs(instance.Namespace).Create(ctx, brokerJob(configuration, instance), writes)
		return unless(apierrors.IsAlreadyExists, err)
	}
	return c.handleBrokers(ctx, configuration, instance)
}

// handleBrokers runs a Pod on each node of the Instance and deletes those on other nodes. It reads
// the Pods with the label from all namespaces.
func (c *Controller) handleBrokers(ctx context.Context, configuration *akriv0.Configuration, instance *akriv0.Instance) error {
	existing, err := c.kubernetes.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: instanceLabel + "=" + instance.Name})
	if err != nil {
		return fmt.Errorf("list brokers: %w", err)
	}
	missing := slices.Clone(instance.Spec.Nodes)
	for _, pod := range existing.Items {
		node := pod.Labels[nodeLabel]
		wanted := slices.Contains(instance.Spec.Nodes, node)
		if wanted && !replaced(&pod) {
			missing = slices.DeleteFunc(missing, func(n string) bool { return n == node })
			continue
		}
		err := c.kubernetes.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		if err := unless(apierrors.IsNotFound, err); err != nil {
			return err
		}
	}
	for _, node := range missing {
		_, err := c.kubernetes.CoreV1().Pods(instance.Namespace).Create(ctx, brokerPod(configuration, instance, node), writes)
		if err := unless(apierrors.IsAlreadyExists, err); err != nil {
			return err
		}
	}
	return nil
}

// replaced reports whether a broker is replaced: one that has ended, or has been Pending for long.
func replaced(pod *corev1.Pod) bool {
	switch {
	case pod.Status.Phase == corev1.PodRunning || pod.Status.StartTime == nil:
		return false
	case pod.Status.Phase == corev1.PodPending:
		return time.Since(pod.Status.StartTime.Time) >= pendingGrace
	}
	return true
}

// handlePod creates the Services when a broker runs, and replaces a broker that has ended.
func (c *Controller) handlePod(ctx context.Context, before, after *corev1.Pod) error {
	switch {
	case after == nil:
		return c.handleEnded(ctx, before)
	case before != nil && before.Status.Phase == after.Status.Phase:
		return nil
	case after.Status.Phase == corev1.PodRunning:
		return c.createServices(ctx, after)
	case after.Status.Phase == corev1.PodSucceeded || after.Status.Phase == corev1.PodFailed:
		return c.handleEnded(ctx, after)
	}
	return nil
}

// createServices creates the Services of the Configuration. Also the Pod of a Job gets them, which
// they do not select.
func (c *Controller) createServices(ctx context.Context, pod *corev1.Pod) error {
	instance, exists := c.instances.Get(pod.Namespace + "/" + pod.Labels[instanceLabel])
	if !exists {
		return nil
	}
	configuration, err := c.configurations.In(pod.Namespace).Get(ctx, instance.Spec.ConfigurationName, metav1.GetOptions{})
	if err != nil {
		return unless(apierrors.IsNotFound, err)
	}
	var services []*corev1.Service
	if configuration.Spec.InstanceServiceSpec != nil {
		services = append(services, instanceService(configuration, instance))
	}
	if configuration.Spec.ConfigurationServiceSpec != nil {
		services = append(services, configurationService(configuration))
	}
	for _, s := range services {
		_, err := c.kubernetes.CoreV1().Services(pod.Namespace).Create(ctx, s, writes)
		if err := unless(apierrors.IsAlreadyExists, err); err != nil {
			return err
		}
	}
	return nil
}

// handleEnded deletes the Services that no Pod needs any more, and handles the Instance of the
// broker.
func (c *Controller) handleEnded(ctx context.Context, pod *corev1.Pod) error {
	for service, label := range map[string]string{
		plain(pod.Labels[instanceLabel]) + "-svc": instanceLabel, pod.Labels[configurationLabel] + "-svc": configurationLabel,
	} {
		needed := slices.ContainsFunc(c.pods.List(), func(other *corev1.Pod) bool {
			ended := other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed
			return other.Labels[label] == pod.Labels[label] && !ended
		})
		if needed {
			continue
		}
		err := c.kubernetes.CoreV1().Services(pod.Namespace).Delete(ctx, service, metav1.DeleteOptions{})
		if err := unless(apierrors.IsNotFound, err); err != nil {
			return err
		}
	}
	owner := metav1.GetControllerOf(pod)
	instance, exists := c.instances.Get(pod.Namespace + "/" + pod.Labels[instanceLabel])
	if !exists || instance.DeletionTimestamp != nil || owner == nil || owner.Kind != "Instance" {
		return nil
	}
	return c.handleInstance(ctx, instance, false)
}

// unless returns the error unless it is one of those that is reports.
func unless(is func(error) bool, err error) error {
	if is(err) {
		return nil
	}
	return err
}
