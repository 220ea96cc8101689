package explain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// NodeNotReporting means that a node has stopped to report to instance-writer.
const NodeNotReporting CauseID = "NodeNotReporting"

func init() { register(rule{NodeNotReporting, LinkActive, 0, nodeNotReporting}) }

func nodeNotReporting(t target, report func(Cause)) {
	reporting := condition(t.configuration, akriv0.ConditionNodesReporting)
	if reporting.Status != metav1.ConditionFalse || reporting.Reason == akriv0.ReasonNodeNotAllowed {
		return
	}

	cause, isExpected := Cause{Message: reporting.Message}, false
	for i := range t.configuration.Status.Nodes {
		node := &t.configuration.Status.Nodes[i]
		if node.NotReportingSince == nil {
			continue
		}
		n := t.nodeNamed(node.Name)
		if isOff(n) {
			isExpected = true
			continue
		}
		if cause.Since == nil || node.NotReportingSince.Before(cause.Since) {
			cause.Subject, cause.Since = subject("Node", "", node.Name), node.NotReportingSince
		}

		check := remedy("Check that discovery-operator runs on the node.",
			"kubectl get pods --namespace %s --field-selector spec.nodeName=%s --selector %s=%s --output wide",
			t.nodeNamespace(), node.Name, PartOfLabel, PartOf)
		if n != nil && !NodeReady(n) {
			check = remedy("Find out why the node is not ready.", "kubectl describe node %s", node.Name)
		}
		cause.Remedies = append(cause.Remedies, check)
	}
	if len(cause.Remedies) > 0 || !isExpected { // the condition can be older than the state of the nodes
		report(cause)
	}
}
