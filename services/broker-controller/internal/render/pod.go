package render

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Placeholder in a broker's resources stands for the resource of the Instance.
const Placeholder corev1.ResourceName = "{{PLACEHOLDER}}"

const nodeNameField = "metadata.name"

// Pod is the broker of an Instance on a node. `attempt` counts the Pods before it that ended soon.
func Pod(instance *akriv0.Instance, node string, broker *akriv0.BrokerSpec, attempt int) *corev1.Pod {
	name := PodName(instance, node)
	pod := &corev1.Pod{ObjectMeta: instanceObject(instance, name), Spec: *broker.BrokerPodSpec.DeepCopy()}
	pod.Labels[LabelTargetNode] = LabelValue(node)
	pod.Annotations = map[string]string{AnnotationSpecHash: PodHash(broker)}
	if attempt > 0 {
		pod.Annotations[AnnotationAttempt] = strconv.Itoa(attempt)
	}
	if users := broker.BrokerPodMetadata; users != nil {
		pod.Labels, pod.Annotations = over(users.Labels, pod.Labels), over(users.Annotations, pod.Annotations)
	}
	fillPlaceholders(&pod.Spec, instance.Name)
	pin(&pod.Spec, node)
	return pod
}

// PodHash is the Hash of all that the user says of broker Pods.
func PodHash(broker *akriv0.BrokerSpec) string {
	if broker.BrokerPodMetadata == nil {
		return Hash(broker.BrokerPodSpec)
	}
	return Hash(akriv0.BrokerSpec{BrokerPodSpec: broker.BrokerPodSpec, BrokerPodMetadata: broker.BrokerPodMetadata})
}

// over is the user's map with ours laid over it: Akri finds its Pods by its own labels and
// annotations.
func over(users, ours map[string]string) map[string]string {
	both := make(map[string]string, len(users)+len(ours))
	maps.Copy(both, users)
	maps.Copy(both, ours)
	return both
}

// Attempt reads what Pod was given.
func Attempt(pod *corev1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[AnnotationAttempt])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func instanceObject(instance *akriv0.Instance, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: instance.Namespace,
		Labels: map[string]string{
			LabelApp:           LabelValue(name),
			LabelController:    akriv0.Group,
			LabelConfiguration: LabelValue(instance.Spec.ConfigurationName),
			LabelInstance:      LabelValue(instance.Name),
		},
		OwnerReferences: []metav1.OwnerReference{owner("Instance", instance)},
	}
}

func owner(kind string, of metav1.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(of, akriv0.GroupVersion.WithKind(kind))
}

func fillPlaceholders(spec *corev1.PodSpec, instance string) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			fillPlaceholder(containers[i].Resources.Limits, instance)
			fillPlaceholder(containers[i].Resources.Requests, instance)
		}
	}
}

func fillPlaceholder(list corev1.ResourceList, instance string) {
	quantity, there := list[Placeholder]
	if !there {
		return
	}
	delete(list, Placeholder)
	list[corev1.ResourceName(akriv0.ResourceName(instance))] = quantity
}

// pin keeps the Pod on its node. The terms of a node selector are alternatives, so the pin goes
// into each of the user's: none of them can undo it. A term without requirements chooses no node
// and must stay so.
func pin(spec *corev1.PodSpec, node string) {
	// It would go past the scheduler, to the same node for all brokers.
	spec.NodeName = ""
	here := corev1.NodeSelectorRequirement{Key: nodeNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	selector := required(spec)
	if len(selector.NodeSelectorTerms) == 0 {
		selector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{here}}}
		return
	}
	for i := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[i]
		if len(term.MatchFields)+len(term.MatchExpressions) > 0 {
			term.MatchFields = append(term.MatchFields, here)
		}
	}
}

func required(spec *corev1.PodSpec) *corev1.NodeSelector {
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
