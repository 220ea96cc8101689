package explain

import corev1 "k8s.io/api/core/v1"

// NodeNotReady means that Kubernetes cannot use the node.
const NodeNotReady CauseID = "NodeNotReady"

func init() { register(rule{NodeNotReady, LinkResource, 0, nodeNotReady}) }

func nodeNotReady(t target, report func(Cause)) {
	for _, place := range t.places() {
		if !NodeReady(place.node) && !place.node.Spec.Unschedulable {
			report(notReadyNode(place.node))
		}
	}
}

func notReadyNode(node *corev1.Node) Cause {
	since := readySince(node)
	return Cause{
		ID: NodeNotReady, Subject: subject("Node", "", node.Name), Since: &since, Message: node.Name + " is not ready",
		Remedies: []Remedy{remedy("Find out why.", "kubectl describe node %s", node.Name)},
	}
}
