package upstream

import (
	"fmt"
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Labels of the objects of upstream's controller.
const (
	appLabel           = "app"
	controllerLabel    = "controller"
	configurationLabel = "akri.sh/configuration"
	instanceLabel      = "akri.sh/instance"
	nodeLabel          = "akri.sh/target-node"
)

// placeholder is the name of a resource in brokerSpec that stands for that of the Instance.
const placeholder = "{{PLACEHOLDER}}"

// brokerPod returns the broker of an Instance on a node. The name has the node only if the device
// is shared. A term for the node is added to the terms of the user, of which one is enough.
func brokerPod(configuration *akriv0.Configuration, instance *akriv0.Instance, node string) *corev1.Pod {
	name := plain(instance.Name) + "-pod"
	if instance.Spec.Shared {
		name = node + "-" + name
	}
	pod := &corev1.Pod{ObjectMeta: metadata(instance, "Instance", instance.Namespace, name, map[string]string{
		configurationLabel: instance.Spec.ConfigurationName, instanceLabel: instance.Name, nodeLabel: node,
	})}
	pod.Spec = *withResource(configuration.Spec.BrokerSpec.BrokerPodSpec, instance.Name)
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	})
	return pod
}

// brokerJob returns the Job of an Instance. Its name has the generation of the Configuration. The
// Pods get fewer labels than the Job.
func brokerJob(configuration *akriv0.Configuration, instance *akriv0.Instance) *batchv1.Job {
	labels := map[string]string{configurationLabel: instance.Spec.ConfigurationName, instanceLabel: instance.Name}
	name := fmt.Sprintf("%s-%d-job", plain(instance.Name), configuration.Generation)
	job := &batchv1.Job{ObjectMeta: metadata(instance, "Instance", instance.Namespace, name, labels)}
	job.Spec = *configuration.Spec.BrokerSpec.BrokerJobSpec.DeepCopy()
	if job.Spec.Template.Labels == nil {
		job.Spec.Template.Labels = map[string]string{}
	}
	maps.Copy(job.Spec.Template.Labels, labels)
	job.Spec.Template.Spec = *withResource(&job.Spec.Template.Spec, instance.Name)
	return job
}

// instanceService returns the Service of the brokers of an Instance.
func instanceService(configuration *akriv0.Configuration, instance *akriv0.Instance) *corev1.Service {
	return service(instance, "Instance", instance.Namespace, plain(instance.Name)+"-svc",
		configuration.Spec.InstanceServiceSpec, map[string]string{instanceLabel: instance.Name})
}

// configurationService returns the Service of all brokers of a Configuration.
func configurationService(configuration *akriv0.Configuration) *corev1.Service {
	return service(configuration, "Configuration", configuration.Namespace, configuration.Name+"-svc",
		configuration.Spec.ConfigurationServiceSpec, map[string]string{configurationLabel: configuration.Name})
}

func service(owner metav1.Object, kind, namespace, name string, spec *corev1.ServiceSpec, brokers map[string]string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metadata(owner, kind, namespace, name, brokers), Spec: *spec.DeepCopy()}
	if s.Spec.Selector == nil {
		s.Spec.Selector = map[string]string{}
	}
	s.Spec.Selector[controllerLabel] = group
	maps.Copy(s.Spec.Selector, brokers)
	return s
}

func metadata(owner metav1.Object, kind, namespace, name string, labels map[string]string) metav1.ObjectMeta {
	all := maps.Clone(labels)
	all[appLabel], all[controllerLabel] = name, group
	return metav1.ObjectMeta{
		Name: name, Namespace: namespace, Labels: all,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk(kind))},
	}
}

// withResource returns a copy of a Pod's spec that requests the resource of the Instance instead of
// the placeholder.
func withResource(spec *corev1.PodSpec, instance string) *corev1.PodSpec {
	spec = spec.DeepCopy()
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				if quantity, found := list[placeholder]; found {
					list[corev1.ResourceName(akriv0.ResourceName(instance))] = quantity
					delete(list, placeholder)
				}
			}
			containers[i].Resources.Claims = nil
		}
	}
	return spec
}

// plain returns a name that can be part of the name of a Service.
func plain(name string) string { return strings.ReplaceAll(name, ".", "-") }

func gvk(kind string) schema.GroupVersionKind { return akriv0.GroupVersion.WithKind(kind) }
