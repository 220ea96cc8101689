package cluster

import (
	"context"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/services/broker-controller/internal/render"
)

// Cache holds what the decisions are made from.
type Cache struct {
	Instances      *kube.Informer[*akriv0.Instance]
	Configurations *kube.Informer[*akriv0.Configuration]
	// Pods, Jobs and Services are those with the labels of brokers, without their specs.
	Pods     *kube.Informer[*corev1.Pod]
	Jobs     *kube.Informer[*batchv1.Job]
	Services *kube.Informer[*corev1.Service]
}

const (
	brokersOnly = render.LabelController + "=" + akriv0.Group + "," + render.LabelConfiguration
	oursOnly    = render.LabelController + "=" + akriv0.Group
)

// Indexes of the cache. Their values are Keys: names are looked up in one namespace, never in all.
const (
	byConfiguration = "configuration"
	byInstance      = "instance"
	byLabelValue    = "label-value"
)

// NewCache starts nothing.
func NewCache(clients Clients) (c Cache, err error) {
	instances := cache.Indexers{byLabelValue: byOwnLabelValue, byConfiguration: func(object any) ([]string, error) {
		instance := object.(*akriv0.Instance)
		return []string{Key(instance.Namespace, instance.Spec.ConfigurationName)}, nil
	}}
	if c.Instances, err = kube.NewInformer(clients.Instances, instances, trimInstance); err != nil {
		return c, err
	}
	if c.Configurations, err = kube.NewInformer(clients.Configurations, cache.Indexers{byLabelValue: byOwnLabelValue}, trimConfiguration); err != nil {
		return c, err
	}
	both := cache.Indexers{byConfiguration: byLabel(render.LabelConfiguration), byInstance: byLabel(render.LabelInstance)}
	if c.Pods, err = kube.NewSelectedInformer(clients.Pods, metav1.ListOptions{LabelSelector: brokersOnly}, both, trimPod); err != nil {
		return c, err
	}
	perInstance := cache.Indexers{byInstance: byLabel(render.LabelInstance)}
	if c.Jobs, err = kube.NewSelectedInformer(clients.Jobs, metav1.ListOptions{LabelSelector: brokersOnly}, perInstance, trimJob); err != nil {
		return c, err
	}
	c.Services, err = kube.NewSelectedInformer(clients.Services, metav1.ListOptions{LabelSelector: oursOnly}, cache.Indexers{}, trimService)
	return c, err
}

// Key of an object in the cache.
func Key(namespace, name string) string { return namespace + "/" + name }

func labelKey(object metav1.Object, label string) string {
	return Key(object.GetNamespace(), object.GetLabels()[label])
}

func byLabel(label string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		return []string{labelKey(object.(metav1.Object), label)}, nil
	}
}

// byOwnLabelValue leads back from a label, which may hold a shortened name, to the object that it
// names.
func byOwnLabelValue(object any) ([]string, error) {
	named := object.(metav1.Object)
	return []string{Key(named.GetNamespace(), render.LabelValue(named.GetName()))}, nil
}

// InstanceKeyOf is the key of the Instance whose broker, or broker's Service, the object is.
func (c Cache) InstanceKeyOf(object metav1.Object) string {
	if owner := metav1.GetControllerOf(object); owner != nil && IsInstance(owner) {
		return Key(object.GetNamespace(), owner.Name)
	}
	key := labelKey(object, render.LabelInstance)
	for _, instance := range c.Instances.ByIndex(byLabelValue, key) {
		return Key(instance.Namespace, instance.Name)
	}
	return key
}

// ConfigurationKeyOf is the key of the Configuration that the object belongs to.
func (c Cache) ConfigurationKeyOf(object metav1.Object) string {
	key := labelKey(object, render.LabelConfiguration)
	for _, configuration := range c.Configurations.ByIndex(byLabelValue, key) {
		return Key(configuration.Namespace, configuration.Name)
	}
	return key
}

// IsInstance says whether the reference is to an Instance.
func IsInstance(owner *metav1.OwnerReference) bool {
	return owner.Kind == "Instance" && owner.APIVersion == akriv0.GroupVersion.String()
}

// InstancesOf returns the Instances of a Configuration.
func (c Cache) InstancesOf(namespace, configuration string) []*akriv0.Instance {
	return c.Instances.ByIndex(byConfiguration, Key(namespace, configuration))
}

// PodsOfInstance returns the Pods that the Service of the Instance chooses from, those of Jobs too.
func (c Cache) PodsOfInstance(namespace, instance string) []*corev1.Pod {
	return c.Pods.ByIndex(byInstance, Key(namespace, render.LabelValue(instance)))
}

// PodsOfConfiguration returns the Pods that the Service of the Configuration chooses from.
func (c Cache) PodsOfConfiguration(namespace, configuration string) []*corev1.Pod {
	return c.Pods.ByIndex(byConfiguration, Key(namespace, render.LabelValue(configuration)))
}

// JobsOfInstance returns the broker Jobs of the Instance.
func (c Cache) JobsOfInstance(namespace, instance string) []*batchv1.Job {
	return c.Jobs.ByIndex(byInstance, Key(namespace, render.LabelValue(instance)))
}

// HasSynced says whether the cache holds a first full list of everything.
func (c Cache) HasSynced() bool {
	return c.Instances.HasSynced() && c.Configurations.HasSynced() &&
		c.Pods.HasSynced() && c.Jobs.HasSynced() && c.Services.HasSynced()
}

// Run keeps the cache up to date until ctx ends.
func (c Cache) Run(ctx context.Context) {
	var group errgroup.Group
	for _, informer := range []cache.SharedIndexInformer{c.Instances, c.Configurations, c.Pods, c.Jobs, c.Services} {
		group.Go(func() error { informer.RunWithContext(ctx); return nil })
	}
	_ = group.Wait()
}

func trimInstance(instance *akriv0.Instance) {
	instance.Annotations, instance.Labels = nil, nil
	instance.Spec.BrokerProperties, instance.Spec.DeviceUsage = nil, nil
}

func trimConfiguration(configuration *akriv0.Configuration) {
	configuration.Annotations, configuration.Labels = nil, nil
	configuration.Status = akriv0.ConfigurationStatus{}
	configuration.Spec.DiscoveryHandler = akriv0.DiscoveryHandler{}
}

func trimPod(pod *corev1.Pod) {
	keepOurAnnotations(pod)
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, StartTime: pod.Status.StartTime}
}

func trimJob(job *batchv1.Job) {
	keepOurAnnotations(job)
	job.Spec, job.Status = batchv1.JobSpec{}, batchv1.JobStatus{Conditions: job.Status.Conditions}
}

func trimService(service *corev1.Service) {
	keepOurAnnotations(service)
	service.Spec, service.Status = corev1.ServiceSpec{}, corev1.ServiceStatus{}
}

func keepOurAnnotations(object metav1.Object) {
	kept := map[string]string{}
	for _, name := range []string{render.AnnotationSpecHash, render.AnnotationAttempt} {
		if value, there := object.GetAnnotations()[name]; there {
			kept[name] = value
		}
	}
	object.SetAnnotations(kept)
}
