package explain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// NodeNotSuitable means that a node sees a device, and the spec of the brokers does not let them
// run there. No rule finds it: it depends on the Pod.
const NodeNotSuitable CauseID = "NodeNotSuitable"

// nodeNotSuitable returns the cause for the brokers of a Configuration, which may be nil.
func nodeNotSuitable(c *akriv0.Configuration, node *corev1.Node, reasons []string) Cause {
	cause := Cause{
		ID: NodeNotSuitable, Subject: subject("Node", "", node.Name),
		Message: fmt.Sprintf("no broker can run on %s: %s", node.Name, strings.Join(reasons, "; ")),
	}
	if c != nil {
		cause.Remedies = []Remedy{
			remedy("Add the tolerations to brokerPodSpec, or change its nodeSelector and affinity.",
				"kubectl edit configuration.akri.sh %s --namespace %s", c.Name, c.Namespace),
			remedy("Or change the taints and labels of the node.", "kubectl describe node %s", node.Name),
		}
	}
	return cause
}
