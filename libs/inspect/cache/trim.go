package cache

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// The functions of this file remove what is not shown: it takes memory, changes often, or can be a
// password.

// lastApplied is the annotation in which kubectl repeats an object.
const lastApplied = corev1.LastAppliedConfigAnnotation

func trimConfiguration(c *akriv0.Configuration) {
	delete(c.Annotations, lastApplied)
	for i := range c.Spec.DiscoveryHandler.DiscoveryProperties {
		c.Spec.DiscoveryHandler.DiscoveryProperties[i].Value = nil
	}
	c.Spec.BrokerProperties = nil
	if c.Spec.BrokerSpec != nil {
		c.Spec.BrokerSpec = &akriv0.BrokerSpec{}
	}
}

// trimInstance keeps the names of properties.
func trimInstance(instance *akriv0.Instance) {
	delete(instance.Annotations, lastApplied)
	for name := range instance.Spec.BrokerProperties {
		instance.Spec.BrokerProperties[name] = ""
	}
}

// trimPod keeps the name of a Pod that is neither of Akri nor requests devices.
func trimPod(pod *corev1.Pod) {
	if !explain.IsRelevant(pod) {
		*pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		}}
		return
	}
	pod.Annotations = nil
	pod.Spec = podSpec(pod.Spec)
}

func podSpec(spec corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: spec.NodeName, ServiceAccountName: spec.ServiceAccountName, NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, RestartPolicy: spec.RestartPolicy,
		InitContainers: containers(spec.InitContainers), Containers: containers(spec.Containers),
	}
}

func containers(all []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, container := range all {
		kept = append(kept, corev1.Container{Name: container.Name, Image: container.Image, Resources: container.Resources})
	}
	return kept
}

func trimJob(job *batchv1.Job) {
	job.Annotations = nil
	job.Spec.Template = corev1.PodTemplateSpec{}
}

func trimDaemonSet(d *appsv1.DaemonSet) {
	d.Annotations = nil
	d.Spec.Template.Spec = podSpec(d.Spec.Template.Spec)
}

func trimDeployment(d *appsv1.Deployment) {
	d.Annotations = nil
	d.Spec.Template.Spec = podSpec(d.Spec.Template.Spec)
}

func trimNode(node *corev1.Node) {
	delete(node.Annotations, lastApplied)
	node.Status.Images = nil
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
}
