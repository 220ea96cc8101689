package cluster

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/kube"
	"akri.sh/services/broker-controller/internal/render"
)

// Cache holds the objects that decisions depend on, without the fields that are not needed.
type Cache struct {
	kube.Informers

	Instances      *kube.Informer[*akriv0.Instance]
	Configurations *kube.Informer[*akriv0.Configuration]
	// Pods, Jobs and Services have the labels of brokers. Their specs are dropped.
	Pods     *kube.Informer[*corev1.Pod]
	Jobs     *kube.Informer[*batchv1.Job]
	Services *kube.Informer[*corev1.Service]
	// DeviceClasses show which devices are published for Dynamic Resource Allocation. It is empty
	// if it does not run.
	DeviceClasses *kube.Informer[*metav1.PartialObjectMetadata]
	// Nodes, and the workloads and Pods of Akri itself, are for verdicts only.
	Nodes        *kube.Informer[*corev1.Node]
	Installation []Installation
	// WriterLease is the Lease that the replicas of instance-writer renew.
	WriterLease *kube.Informer[*coordinationv1.Lease]
}

// Installation are Akri's own objects in one of its namespaces.
type Installation struct {
	DaemonSets  *kube.Informer[*appsv1.DaemonSet]
	Deployments *kube.Informer[*appsv1.Deployment]
	Pods        *kube.Informer[*corev1.Pod]
	Warnings    *kube.Informer[*corev1.Event]
}

// writerLease is the name of WriterLease.
const writerLease = "akri-instance-writer"

const (
	serviceSelector = render.LabelController + "=" + akriv0.Group
	brokerSelector  = serviceSelector + "," + render.LabelConfiguration
)

// Indexes of the cache. Their values are Keys, because names are unique only within a namespace,
// except those of byName.
const (
	byConfiguration = "configuration"
	byInstance      = "instance"
	byLabelValue    = "label-value"
	byName          = "name"
)

// NewCache returns a cache that is not running. The namespaces are those of Akri, the one of the
// cluster services first.
func NewCache(clients Clients, namespaces ...string) Cache {
	names := func(object any) ([]string, error) { return []string{object.(metav1.Object).GetName()}, nil }
	instanceIndexers := cache.Indexers{byName: names, byLabelValue: indexByLabelValue, byConfiguration: func(object any) ([]string, error) {
		instance := object.(*akriv0.Instance)
		return []string{Key(instance.Namespace, instance.Spec.ConfigurationName)}, nil
	}}
	configurationIndexers := cache.Indexers{byLabelValue: indexByLabelValue}
	podIndexers := cache.Indexers{
		byConfiguration: indexByLabel(render.LabelConfiguration), byInstance: indexByLabel(render.LabelInstance),
	}
	jobIndexers := cache.Indexers{byInstance: indexByLabel(render.LabelInstance)}
	brokers, services := metav1.ListOptions{LabelSelector: brokerSelector}, metav1.ListOptions{LabelSelector: serviceSelector}
	c := Cache{
		Instances:      kube.NewInformer(clients.Instances, instanceIndexers, trimInstance),
		Configurations: kube.NewInformer(clients.Configurations, configurationIndexers, trimConfiguration),
		Pods:           kube.NewSelectedInformer(clients.Pods, metav1.NamespaceAll, brokers, podIndexers, trimPod),
		Jobs:           kube.NewSelectedInformer(clients.Jobs, metav1.NamespaceAll, brokers, jobIndexers, trimJob),
		Services:       kube.NewSelectedInformer(clients.Services, metav1.NamespaceAll, services, nil, trimService),
		DeviceClasses:  kube.NewInformer(clients.DeviceClasses, nil, trimClass),
	}
	c.Nodes = kube.NewInformer(clients.Nodes, nil, explain.TrimNode)
	c.WriterLease = kube.NewNamedInformer(clients.Leases, namespaces[0], writerLease)
	c.Informers = kube.Informers{c.Instances, c.Configurations, c.Pods, c.Jobs, c.Services, c.Nodes, c.WriterLease}
	ofAkri := metav1.ListOptions{LabelSelector: explain.PartOfLabel + "=" + explain.PartOf}
	warnings := metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}
	for _, namespace := range slices.Compact(namespaces) {
		own := Installation{
			DaemonSets:  kube.NewSelectedInformer(clients.DaemonSets, namespace, ofAkri, nil, explain.TrimDaemonSet),
			Deployments: kube.NewSelectedInformer(clients.Deployments, namespace, ofAkri, nil, explain.TrimDeployment),
			Pods:        kube.NewSelectedInformer(clients.Pods, namespace, ofAkri, nil, trimOwnPod),
			Warnings:    kube.NewSelectedInformer(clients.Events, namespace, warnings, nil, explain.TrimEvent),
		}
		c.Installation = append(c.Installation, own)
		c.Informers = append(c.Informers, own.DaemonSets, own.Deployments, own.Pods, own.Warnings)
	}
	return c
}

// Key returns the key of an object in the cache.
func Key(namespace, name string) string { return namespace + "/" + name }

func labelKey(object metav1.Object, label string) string {
	return Key(object.GetNamespace(), object.GetLabels()[label])
}

func indexByLabel(label string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		return []string{labelKey(object.(metav1.Object), label)}, nil
	}
}

// indexByLabelValue finds the object that a label names. The label may hold a shortened name.
func indexByLabelValue(object any) ([]string, error) {
	owner := object.(metav1.Object)
	return []string{Key(owner.GetNamespace(), render.LabelValue(owner.GetName()))}, nil
}

// InstanceKeyOf returns the key of the Instance that a broker or its Service belongs to.
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

// ConfigurationKeyOf returns the key of the Configuration that an object belongs to.
func (c Cache) ConfigurationKeyOf(object metav1.Object) string {
	key := labelKey(object, render.LabelConfiguration)
	for _, configuration := range c.Configurations.ByIndex(byLabelValue, key) {
		return Key(configuration.Namespace, configuration.Name)
	}
	return key
}

// IsInstance reports whether a reference is to an Instance.
func IsInstance(owner *metav1.OwnerReference) bool {
	return owner.Kind == "Instance" && owner.APIVersion == akriv0.GroupVersion.String()
}

// InstancesOf returns the Instances of a Configuration.
func (c Cache) InstancesOf(namespace, configuration string) []*akriv0.Instance {
	return c.Instances.ByIndex(byConfiguration, Key(namespace, configuration))
}

// PodsOfInstance returns the Pods that the Service of the Instance selects, including Pods of Jobs.
func (c Cache) PodsOfInstance(namespace, instance string) []*corev1.Pod {
	return c.Pods.ByIndex(byInstance, Key(namespace, render.LabelValue(instance)))
}

// PodsOfConfiguration returns the Pods that the Service of the Configuration selects.
func (c Cache) PodsOfConfiguration(namespace, configuration string) []*corev1.Pod {
	return c.Pods.ByIndex(byConfiguration, Key(namespace, render.LabelValue(configuration)))
}

// JobsOfInstance returns the broker Jobs of the Instance.
func (c Cache) JobsOfInstance(namespace, instance string) []*batchv1.Job {
	return c.Jobs.ByIndex(byInstance, Key(namespace, render.LabelValue(instance)))
}

// InstancesNamed returns the Instances of the name, in all namespaces.
func (c Cache) InstancesNamed(name string) []*akriv0.Instance {
	return c.Instances.ByIndex(byName, name)
}

func trimClass(class *metav1.PartialObjectMetadata) {
	class.Annotations, class.Labels, class.OwnerReferences = nil, nil, nil
}

func trimInstance(instance *akriv0.Instance) {
	kept := map[string]string{}
	if id, ok := instance.Annotations[akriv0.DeviceIDAnnotation]; ok {
		kept[akriv0.DeviceIDAnnotation] = id
	}
	instance.Annotations, instance.Labels = kept, nil
	instance.Spec.BrokerProperties = nil
}

func trimConfiguration(configuration *akriv0.Configuration) {
	configuration.Annotations, configuration.Labels = nil, nil
	handler := &configuration.Spec.DiscoveryHandler
	handler.DiscoveryDetails = ""
	for i := range handler.DiscoveryProperties {
		handler.DiscoveryProperties[i].Value = nil
	}
}

// OwnConditions are the types of the conditions that this service writes.
var OwnConditions = []string{
	akriv0.ConditionSpecValid, akriv0.ConditionBrokersRunning, akriv0.ConditionDevicesWorking, akriv0.ConditionBrokersWorking,
}

// Own returns the conditions that this service writes.
func Own(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(condition metav1.Condition) bool { return !slices.Contains(OwnConditions, condition.Type) })
}

func trimPod(pod *corev1.Pod) {
	annotations := annotationsOf(pod)
	explain.TrimPod(pod)
	pod.Annotations = annotations
	status := pod.Status
	pod.Status = corev1.PodStatus{
		Phase: status.Phase, StartTime: status.StartTime, Reason: status.Reason, Message: status.Message, Conditions: status.Conditions,
		InitContainerStatuses:       trimContainers(status.InitContainerStatuses),
		ContainerStatuses:           trimContainers(status.ContainerStatuses),
		ExtendedResourceClaimStatus: status.ExtendedResourceClaimStatus,
	}
}

// trimOwnPod removes the ends of logs, which must not get into conditions.
func trimOwnPod(pod *corev1.Pod) {
	explain.TrimPod(pod)
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			statuses[i].State.Terminated = trimEnd(statuses[i].State.Terminated)
			statuses[i].LastTerminationState.Terminated = trimEnd(statuses[i].LastTerminationState.Terminated)
		}
	}
}

// trimContainers keeps why containers wait and how they have ended.
func trimContainers(containers []corev1.ContainerStatus) (trimmed []corev1.ContainerStatus) {
	for _, c := range containers {
		if c.State.Waiting == nil && c.State.Terminated == nil && c.RestartCount == 0 {
			continue
		}
		trimmed = append(trimmed, corev1.ContainerStatus{
			Name: c.Name, RestartCount: c.RestartCount,
			State:                corev1.ContainerState{Waiting: c.State.Waiting, Terminated: trimEnd(c.State.Terminated)},
			LastTerminationState: corev1.ContainerState{Terminated: trimEnd(c.LastTerminationState.Terminated)},
		})
	}
	return trimmed
}

func trimEnd(end *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	if end == nil {
		return nil
	}
	return &corev1.ContainerStateTerminated{ExitCode: end.ExitCode, Reason: end.Reason}
}

func trimJob(job *batchv1.Job) {
	job.Annotations = annotationsOf(job)
	job.Spec, job.Status = batchv1.JobSpec{}, batchv1.JobStatus{Conditions: job.Status.Conditions}
}

func trimService(service *corev1.Service) {
	service.Annotations = annotationsOf(service)
	service.Spec, service.Status = corev1.ServiceSpec{}, corev1.ServiceStatus{}
}

// annotationsOf returns the annotations that this service sets and reads.
func annotationsOf(object metav1.Object) map[string]string {
	kept := map[string]string{}
	for _, name := range []string{render.AnnotationSpecHash, render.AnnotationAttempt} {
		if value, ok := object.GetAnnotations()[name]; ok {
			kept[name] = value
		}
	}
	return kept
}
