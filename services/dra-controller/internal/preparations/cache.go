package preparations

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"akri.sh/libs/kube"
)

// Cache holds the Pods that decisions depend on, without the fields that are not needed.
type Cache struct {
	client *kube.Client[*corev1.Pod, *corev1.PodList]
	// waiting are the Pods of all namespaces that have a node and whose containers have not
	// started.
	waiting *kube.Informer[*corev1.Pod]
	// plugins are the Pods that run dra-kubelet-plugin.
	plugins *kube.Informer[*corev1.Pod]
}

// Indexes of the cache.
const (
	byNode  = "node"
	byClaim = "claim"
)

// pluginSelector selects the Pods that run dra-kubelet-plugin. The agent does, with Dynamic
// Resource Allocation.
const pluginSelector = "app.kubernetes.io/component in (dra-kubelet-plugin,agent)"

// NewCache returns a cache that is not running. It sends no request. The namespace is that of the
// services of nodes.
func NewCache(config *rest.Config, namespace string) (*Cache, error) {
	pods, err := kube.NewClient[corev1.Pod, corev1.PodList](config, corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, err
	}
	nodes := func(object any) ([]string, error) { return []string{object.(*corev1.Pod).Spec.NodeName}, nil }
	claims := func(object any) ([]string, error) { return claimsOf(object.(*corev1.Pod)), nil }
	waiting := metav1.ListOptions{FieldSelector: fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermEqualSelector("status.phase", string(corev1.PodPending)),
	).String()}
	plugins := metav1.ListOptions{LabelSelector: pluginSelector}
	return &Cache{
		client:  pods,
		waiting: kube.NewSelectedInformer(pods, metav1.NamespaceAll, waiting, cache.Indexers{byNode: nodes, byClaim: claims}, trim),
		plugins: kube.NewSelectedInformer(pods, namespace, plugins, cache.Indexers{byNode: nodes}, trim),
	}, nil
}

// trim keeps what Due and claimsOf read.
func trim(pod *corev1.Pod) {
	meta := metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
	}
	if returned, exists := pod.Annotations[Annotation]; exists {
		meta.Annotations = map[string]string{Annotation: returned}
	}
	status := corev1.PodStatus{
		StartTime: pod.Status.StartTime, ResourceClaimStatuses: pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.PodReadyToStartContainers} {
		kept := condition(pod, kind)
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: kind, Status: kept.Status, LastTransitionTime: kept.LastTransitionTime,
		})
	}
	*pod = corev1.Pod{
		ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, ResourceClaims: pod.Spec.ResourceClaims}, Status: status,
	}
}

// claimsOf returns the namespaces and names of the claims of the Pod.
func claimsOf(pod *corev1.Pod) (keys []string) {
	add := func(name *string) {
		if name != nil {
			keys = append(keys, pod.Namespace+"/"+*name)
		}
	}
	for _, claim := range pod.Spec.ResourceClaims {
		add(claim.ResourceClaimName)
	}
	for _, made := range pod.Status.ResourceClaimStatuses {
		add(made.ResourceClaimName)
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		add(&extended.ResourceClaimName)
	}
	return keys
}
