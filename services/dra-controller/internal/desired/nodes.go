package desired

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// UsesDRA reports whether Pods on the node get devices by Dynamic Resource Allocation, in an
// installation that uses it: nodes with the label keep device plugins.
func UsesDRA(node *corev1.Node) bool {
	return node.Labels[akriv0.ResourcesLabel] != akriv0.ResourcesDevicePlugin
}

// Nodes are the nodes that a slice selects: a label or a field, `=`, and its values in order,
// separated by commas.
type Nodes string

// nodeSet selects a node by name if there is one, and by their host names otherwise: a node
// selector cannot list the names of several nodes. A slice with spec.nodeName would cost the
// scheduler a little less, but a kubelet deletes the slices that have the name of its node when it
// starts.
func nodeSet(nodes []*corev1.Node, shared bool) Nodes {
	if !shared && len(nodes) == 1 {
		return Nodes(metav1.ObjectNameField + "=" + nodes[0].Name)
	}
	hosts := make([]string, 0, len(nodes))
	for _, node := range nodes {
		hosts = append(hosts, node.Labels[corev1.LabelHostname])
	}
	slices.Sort(hosts)
	return Nodes(corev1.LabelHostname + "=" + strings.Join(slices.Compact(hosts), ","))
}

func (n Nodes) selector() *corev1.NodeSelector {
	key, values, _ := strings.Cut(string(n), "=")
	requirements := []corev1.NodeSelectorRequirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(values, ",")},
	}
	term := corev1.NodeSelectorTerm{MatchExpressions: requirements}
	if key == metav1.ObjectNameField {
		term = corev1.NodeSelectorTerm{MatchFields: requirements}
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
}

// nodesOf returns the nodes of a selector, or of none if Nodes has no such selector.
func nodesOf(selector *corev1.NodeSelector) Nodes {
	for _, term := range selector.NodeSelectorTerms {
		for _, requirement := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			return Nodes(requirement.Key + "=" + strings.Join(requirement.Values, ","))
		}
	}
	return ""
}
