package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Node returns the verdict on a node: Kubernetes can use it, its clock is right, and Akri's Pods
// there are ready.
func Node(s *Snapshot, node *corev1.Node) Verdict {
	return nodeLink(s, node).of("Node", "", node.Name)
}

func nodeLink(s *Snapshot, node *corev1.Node) Link {
	switch {
	case node.Spec.Unschedulable:
		return Link{Name: LinkActive, State: OutOfService, Message: cordonedMessage(node)}
	case !NodeReady(node):
		return broken(LinkActive, notReadyNode(node))
	case !s.readable("pods") || s.OneNamespace:
		return skipped(LinkActive, "not checked: you may not list the Pods of Akri")
	}
	for _, without := range s.NodesWithoutAkri() {
		switch {
		case without.Node != node.Name:
		case without.needed(s):
			return broken(LinkActive, without.Cause(s))
		default:
			return skipped(LinkActive, without.Cause(s).Message)
		}
	}

	var links []Link
	for i := range s.Pods {
		if pod := &s.Pods[i]; IsAkri(pod) && pod.Spec.NodeName == node.Name && !ended(pod) {
			links = append(links, chain(target{Snapshot: s, pod: pod}.podLinks()))
		}
	}
	if len(links) == 0 {
		return skipped(LinkActive, "no Pod of Akri")
	}
	result := group("Pod", links)
	if wrong := wrongClock(s, node); wrong != nil {
		result = worst(partly(LinkActive, wrong.Message, *wrong), result)
	}
	if silent := notReportingCause(s, node.Name); silent != nil {
		return worst(result, broken(LinkActive, *silent))
	}
	return result
}

// isOff reports whether the administrator has switched the node off: it is cordoned and not ready.
// The node may be nil.
func isOff(node *corev1.Node) bool {
	return node != nil && node.Spec.Unschedulable && !NodeReady(node)
}

// notReportingCause returns the first cause if the node no longer reports on a Configuration.
func notReportingCause(s *Snapshot, node string) *Cause {
	for i := range s.Configurations {
		c := &s.Configurations[i]
		lost := slices.ContainsFunc(c.Status.Nodes, func(n akriv0.NodeStatus) bool { return n.Name == node && n.NotReportingSince != nil })
		if !lost {
			continue
		}
		for _, cause := range (target{Snapshot: s, configuration: c}).causes(LinkActive) {
			if (cause.ID == ClockWrong || cause.ID == NodeNotReporting) && cause.Subject != nil && cause.Subject.Name == node {
				return &cause
			}
		}
	}
	return nil
}
