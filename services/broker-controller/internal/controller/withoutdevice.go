package controller

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// withoutDevice reports whether the scheduler has bound the Pod to a node without a device that the
// Pod requests. kube-scheduler does so if the DeviceClass of the device arrives while it examines
// the Pod (docs/upstream/scheduler-late-class.md), and the kubelet then starts the containers: it
// ignores a resource that no device plugin of the node has ever advertised.
func (c *Controller) withoutDevice(ctx context.Context, pod *corev1.Pod) (bool, error) {
	requested := requestedDevices(pod)
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

// requestedDevices returns the resources of Akri that the containers of the Pod request.
func requestedDevices(pod *corev1.Pod) (names []corev1.ResourceName) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			for name, quantity := range container.Resources.Limits {
				if strings.HasPrefix(string(name), akriv0.Group+"/") && !quantity.IsZero() {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// advertises reports whether device plugins of the node have advertised all resources. The kubelet
// keeps a resource in the capacity, with the value 0, when its plugin is gone.
func advertises(node *corev1.Node, names []corev1.ResourceName) bool {
	for _, name := range names {
		if _, advertised := node.Status.Capacity[name]; !advertised {
			return false
		}
	}
	return true
}
