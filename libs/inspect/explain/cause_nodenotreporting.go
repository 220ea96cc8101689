package explain

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// NodeNotReporting means that a node has stopped to report to instance-writer.
const NodeNotReporting CauseID = "NodeNotReporting"

func init() { register(rule{NodeNotReporting, LinkActive, 0, nodeNotReporting}) }

func nodeNotReporting(t target) []Cause {
	reporting := condition(t.configuration, akriv0.ConditionNodesReporting)
	if reporting.Status != metav1.ConditionFalse {
		return nil
	}

	cause := Cause{Message: reporting.Message}
	for i := range t.configuration.Status.Nodes {
		node := &t.configuration.Status.Nodes[i]
		if node.NotReportingSince == nil {
			continue
		}
		if cause.Since == nil || node.NotReportingSince.Before(cause.Since) {
			cause.Subject, cause.Since = &akriv0.Subject{Kind: "Node", Name: node.Name}, node.NotReportingSince
		}

		if n := find(t.Nodes, "", node.Name); n != nil && !NodeReady(n) {
			cause.Remedies = append(cause.Remedies, Remedy{Text: "Find out why the node is not ready.", Command: "kubectl describe node " + node.Name})
			continue
		}
		cause.Remedies = append(cause.Remedies, Remedy{
			Text: "Check that discovery-operator runs on the node.",
			Command: fmt.Sprintf("kubectl get pods --namespace %s --field-selector spec.nodeName=%s --selector %s=%s --output wide",
				t.nodeNamespace(), node.Name, PartOfLabel, PartOf),
		})
	}
	return []Cause{cause}
}
