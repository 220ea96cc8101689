package explain

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// The functions of this file remove from objects in a cache what no explanation needs: it takes
// memory, changes often, or can be a password.

// lastApplied is the annotation in which kubectl repeats an object.
const lastApplied = corev1.LastAppliedConfigAnnotation

// TrimConfiguration keeps the names of properties and, of the brokers, where they may run.
func TrimConfiguration(c *akriv0.Configuration) {
	delete(c.Annotations, lastApplied)
	for i := range c.Spec.DiscoveryHandler.DiscoveryProperties {
		c.Spec.DiscoveryHandler.DiscoveryProperties[i].Value = nil
	}
	c.Spec.BrokerProperties = nil
	if c.Spec.BrokerSpec != nil {
		c.Spec.BrokerSpec = trimBrokers(c.Spec.BrokerSpec)
	}
}

func trimBrokers(spec *akriv0.BrokerSpec) *akriv0.BrokerSpec {
	trimmed := &akriv0.BrokerSpec{}
	if spec.BrokerPodSpec != nil {
		trimmed.BrokerPodSpec = new(podSpec(*spec.BrokerPodSpec))
	}
	if spec.BrokerJobSpec != nil {
		trimmed.BrokerJobSpec = &batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: podSpec(spec.BrokerJobSpec.Template.Spec)}}
	}
	return trimmed
}

// TrimInstance keeps the names of properties.
func TrimInstance(instance *akriv0.Instance) {
	delete(instance.Annotations, lastApplied)
	for name := range instance.Spec.BrokerProperties {
		instance.Spec.BrokerProperties[name] = ""
	}
}

// TrimPod keeps the name of a Pod that is neither of Akri nor requests devices, and has no claims.
func TrimPod(pod *corev1.Pod) {
	if !IsRelevant(pod) && !HasClaims(pod) {
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
		NodeName: spec.NodeName, ServiceAccountName: spec.ServiceAccountName, RestartPolicy: spec.RestartPolicy,
		NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations,
		InitContainers: trimContainers(spec.InitContainers), Containers: trimContainers(spec.Containers),
		Volumes: trimVolumes(spec.Volumes), ResourceClaims: spec.ResourceClaims,
	}
}

// trimVolumes keeps the names of volumes, and of what they mount.
func trimVolumes(all []corev1.Volume) []corev1.Volume {
	var kept []corev1.Volume
	for _, volume := range all {
		trimmed := corev1.Volume{Name: volume.Name, VolumeSource: corev1.VolumeSource{HostPath: volume.HostPath}}
		if from := volume.ConfigMap; from != nil {
			trimmed.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: from.LocalObjectReference, Optional: from.Optional}
		}
		if from := volume.Secret; from != nil {
			trimmed.Secret = &corev1.SecretVolumeSource{SecretName: from.SecretName, Optional: from.Optional}
		}
		if volume.Projected != nil {
			trimmed.Projected = &corev1.ProjectedVolumeSource{Sources: trimSources(volume.Projected.Sources)}
		}
		kept = append(kept, trimmed)
	}
	return kept
}

func trimSources(all []corev1.VolumeProjection) []corev1.VolumeProjection {
	var kept []corev1.VolumeProjection
	for _, source := range all {
		switch {
		case source.ConfigMap != nil:
			kept = append(kept, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: source.ConfigMap.LocalObjectReference, Optional: source.ConfigMap.Optional,
			}})
		case source.Secret != nil:
			kept = append(kept, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
				LocalObjectReference: source.Secret.LocalObjectReference, Optional: source.Secret.Optional,
			}})
		}
	}
	return kept
}

func trimContainers(all []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, container := range all {
		kept = append(kept, corev1.Container{Name: container.Name, Image: container.Image, Resources: container.Resources})
	}
	return kept
}

// TrimJob removes the Pod template.
func TrimJob(job *batchv1.Job) {
	job.Annotations = nil
	job.Spec.Template = corev1.PodTemplateSpec{}
}

// TrimDaemonSet removes what Pods of the DaemonSet do.
func TrimDaemonSet(d *appsv1.DaemonSet) {
	d.Annotations = nil
	d.Spec.Template.Spec = podSpec(d.Spec.Template.Spec)
}

// TrimDeployment removes what Pods of the Deployment do.
func TrimDeployment(d *appsv1.Deployment) {
	d.Annotations = nil
	d.Spec.Template.Spec = podSpec(d.Spec.Template.Spec)
}

// TrimClaim removes the parameters of drivers, and what they report.
func TrimClaim(claim *resourcev1.ResourceClaim) {
	claim.Annotations = nil
	claim.Spec.Devices.Config = nil
	claim.Status.Devices = nil
	if claim.Status.Allocation != nil {
		claim.Status.Allocation.Devices.Config = nil
	}
}

// TrimClaimTemplate removes the parameters of drivers.
func TrimClaimTemplate(template *resourcev1.ResourceClaimTemplate) {
	template.Annotations = nil
	template.Spec.Annotations = nil
	template.Spec.Spec.Devices.Config = nil
}

// TrimSlice removes the annotations.
func TrimSlice(slice *resourcev1.ResourceSlice) { slice.Annotations = nil }

// maxEventText limits the message of an Event in bytes.
const maxEventText = 1024

// TrimEvent removes who reported the Event, and the end of a long message.
func TrimEvent(event *corev1.Event) {
	event.Annotations, event.Source, event.ReportingController, event.ReportingInstance, event.Related = nil, corev1.EventSource{}, "", "", nil
	if len(event.Message) > maxEventText {
		event.Message = strings.ToValidUTF8(event.Message[:maxEventText], "")
	}
}

// TrimNode removes the images, and the times of heartbeats.
func TrimNode(node *corev1.Node) {
	delete(node.Annotations, lastApplied)
	node.Status.Images = nil
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
}
