package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// RequestedOn returns what the Pods request of each node, by the name of the node, as the scheduler
// adds it up.
func RequestedOn(pods []corev1.Pod) map[string]corev1.ResourceList {
	requested := map[string]corev1.ResourceList{}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" || ended(pod) {
			continue
		}
		node := requested[pod.Spec.NodeName]
		if node == nil {
			node = corev1.ResourceList{}
			requested[pod.Spec.NodeName] = node
		}
		for name, quantity := range podRequests(pod) {
			sum := node[name]
			sum.Add(quantity)
			node[name] = sum
		}
	}
	return requested
}

// podRequests returns what a Pod requests of its node. Each node has a limited number of Pods.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = resource.MustParse("1")
	return requests
}

// insufficientOn returns the resources, other than those of Akri, of which the node has less than
// the Pod requests, or less left if all Pods are known.
func (t target) insufficientOn(node *corev1.Node) []string {
	var reasons []string
	for _, need := range t.needs(node) {
		left := need.allocatable.DeepCopy()
		left.Sub(t.Requested[node.Name][need.resource])
		switch {
		case need.quantity.Cmp(need.allocatable) > 0:
			reasons = append(reasons, fmt.Sprintf("%s, it has %s", need, need.allocatable.String()))
		case need.quantity.Cmp(left) > 0:
			reasons = append(reasons, fmt.Sprintf("%s, %s of %s left", need, left.String(), need.allocatable.String()))
		}
	}
	return reasons
}

// perhapsInsufficientOn returns the resources that the scheduler names, for a node of which not all
// Pods are known.
func (t target) perhapsInsufficientOn(node *corev1.Node) []string {
	var reasons []string
	for _, need := range t.needs(node) {
		isNamed := strings.Contains(t.refusal, "Insufficient "+string(need.resource))
		if isNamed || need.resource == corev1.ResourcePods && strings.Contains(t.refusal, "Too many pods") {
			reasons = append(reasons, fmt.Sprintf("%s, other Pods request a part of its %s", need, need.allocatable.String()))
		}
	}
	return reasons
}

// need is what a Pod requests of a resource, and what a node has for all Pods.
type need struct {
	resource              corev1.ResourceName
	quantity, allocatable resource.Quantity
}

func (n need) String() string {
	return fmt.Sprintf("%s of %s requested", n.quantity.String(), n.resource)
}

// needs returns the requests of the Pod except those of Akri's resources, and those of nothing,
// which also fit on a node that has too little for its other Pods. It returns none if the kubelet
// of the node has not reported what it has.
func (t target) needs(node *corev1.Node) []need {
	if _, reported := node.Status.Allocatable[corev1.ResourcePods]; !reported {
		return nil
	}
	requests := podRequests(t.pod)
	var needs []need
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		if !quantity.IsZero() && !strings.HasPrefix(string(name), akriv0.ResourceName("")) {
			needs = append(needs, need{name, quantity, node.Status.Allocatable[name]})
		}
	}
	return needs
}
