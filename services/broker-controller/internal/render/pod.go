// Package render creates the broker Pods, Jobs and Services of a Configuration. Names, labels and
// owner references are those of upstream Akri. Rendering is pure: the same input gives the same
// object on every replica.
package render

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Placeholder is the resource name in a broker spec that is replaced by the resource of the
// Instance.
const Placeholder corev1.ResourceName = "{{PLACEHOLDER}}"

// Pod returns the broker Pod of an Instance on a node. attempt counts the previous Pods that ended
// soon.
func Pod(instance *akriv0.Instance, node string, broker *akriv0.BrokerSpec, attempt int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: objectMeta(instance, PodName(instance, node)), Spec: *broker.BrokerPodSpec.DeepCopy()}
	pod.Labels[LabelTargetNode] = LabelValue(node)
	pod.Annotations = map[string]string{AnnotationSpecHash: PodHash(broker)}
	if attempt > 0 {
		pod.Annotations[AnnotationAttempt] = strconv.Itoa(attempt)
	}
	names := namesOf(instance)
	addMetadata(&pod.ObjectMeta, broker.BrokerPodMetadata, names)
	names.replacePod(&pod.Spec)
	replacePlaceholders(&pod.Spec, instance.Name)
	pinToNode(&pod.Spec, node)
	return pod
}

// PodHash returns the Hash of the user's spec and metadata of broker Pods.
func PodHash(broker *akriv0.BrokerSpec) string {
	if broker.BrokerPodMetadata == nil {
		return Hash(broker.BrokerPodSpec)
	}
	return Hash(akriv0.BrokerSpec{BrokerPodSpec: broker.BrokerPodSpec, BrokerPodMetadata: broker.BrokerPodMetadata})
}

// addMetadata adds the user's metadata to the reserved one.
func addMetadata(object *metav1.ObjectMeta, user *akriv0.AdditionalMetadata, names Names) {
	if user != nil {
		object.Labels = merge(names.Values(user.Labels), object.Labels)
		object.Annotations = merge(names.Values(user.Annotations), object.Annotations)
	}
}

// merge returns the user's map with the reserved keys set. The controller finds its Pods by the
// reserved keys.
func merge(user, reserved map[string]string) map[string]string {
	merged := make(map[string]string, len(user)+len(reserved))
	maps.Copy(merged, user)
	maps.Copy(merged, reserved)
	return merged
}

// Attempt returns the attempt that was passed to Pod.
func Attempt(pod *corev1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[AnnotationAttempt])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func objectMeta(instance *akriv0.Instance, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: instance.Namespace,
		Labels: map[string]string{
			LabelApp:           LabelValue(name),
			LabelController:    akriv0.Group,
			LabelConfiguration: LabelValue(instance.Spec.ConfigurationName),
			LabelInstance:      LabelValue(instance.Name),
		},
		OwnerReferences: []metav1.OwnerReference{ownerReference("Instance", instance)},
	}
}

func ownerReference(kind string, owner metav1.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, akriv0.GroupVersion.WithKind(kind))
}

func replacePlaceholders(spec *corev1.PodSpec, instance string) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			replacePlaceholder(containers[i].Resources.Limits, instance)
			replacePlaceholder(containers[i].Resources.Requests, instance)
		}
	}
}

func replacePlaceholder(resources corev1.ResourceList, instance string) {
	quantity, ok := resources[Placeholder]
	if !ok {
		return
	}
	delete(resources, Placeholder)
	resources[corev1.ResourceName(akriv0.ResourceName(instance))] = quantity
}

// pinToNode restricts the Pod to a node. The terms of a node selector are alternatives, so each of
// the user's terms gets the restriction. A term without requirements matches no node and stays
// empty.
func pinToNode(spec *corev1.PodSpec, node string) {
	spec.NodeName = "" // it would bypass the scheduler and send all brokers to one node
	onNode := corev1.NodeSelectorRequirement{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
	}
	selector := requiredNodeSelector(spec)
	if len(selector.NodeSelectorTerms) == 0 {
		selector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{onNode}}}
		return
	}
	for i := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[i]
		if len(term.MatchFields)+len(term.MatchExpressions) > 0 {
			term.MatchFields = append(term.MatchFields, onNode)
		}
	}
}

func requiredNodeSelector(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	return affinity.RequiredDuringSchedulingIgnoredDuringExecution
}
