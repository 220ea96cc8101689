package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// withoutDevice reports whether the scheduler has bound the Pod to a node without a device that the
// Pod requests. kube-scheduler does so if the DeviceClass of the device arrives while it examines
// the Pod (docs/upstream/scheduler-late-class.md), and the kubelet then starts the containers: it
// ignores a resource that no device plugin of the node has ever advertised.
func (c *Controller) withoutDevice(ctx context.Context, pod *corev1.Pod) (bool, error) {
	requested := explain.DeviceRequests(pod)
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || ended(pod) ||
		pod.Status.ExtendedResourceClaimStatus != nil || len(requested) == 0 {
		return false, nil
	}
	if node, exists := c.Cache.Nodes.Get(pod.Spec.NodeName); exists && advertises(node, requested) {
		return false, nil
	}

	// The cache may be older than the binding.
	nodes, err := c.Clients.Nodes.In(metav1.NamespaceNone).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Spec.NodeName})
	if err != nil {
		return false, fmt.Errorf("get Node %q of Pod %q: %w", pod.Spec.NodeName, pod.Name, err)
	}
	return len(nodes.Items) > 0 && !advertises(&nodes.Items[0], requested), nil
}

// advertises reports whether device plugins of the node have advertised all requested devices. The
// kubelet keeps a resource in the capacity, with the value 0, when its plugin is gone.
func advertises(node *corev1.Node, requested map[string]int64) bool {
	for name := range requested {
		if _, advertised := node.Status.Capacity[corev1.ResourceName(akriv0.ResourceName(name))]; !advertised {
			return false
		}
	}
	return true
}
