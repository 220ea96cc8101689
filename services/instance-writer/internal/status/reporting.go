package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func notReporting(node akriv0.NodeStatus) bool { return node.NotReportingSince != nil }

// nodesReporting is False if spec.nodes allows no Node, and otherwise as nodesReporting.
func (in Input) nodesReporting(known summary) metav1.Condition {
	if in.Configuration.Spec.Nodes == nil || len(in.Nodes) > 0 {
		return nodesReporting(known, in.Nodes, in.Unlisted.Settled)
	}
	return metav1.Condition{
		Type: akriv0.ConditionNodesReporting, Status: metav1.ConditionFalse, Reason: akriv0.ReasonNodeNotAllowed,
		Message: "spec.nodes allows no Node of the cluster",
	}
}

// nodesReporting is False if a node no longer reports, unless the node is cordoned and not ready:
// its administrator has switched it off. It lists the nodes that have not reported only for
// information, because discovery-operator may run on some of the nodes only.
func nodesReporting(known summary, nodes []*corev1.Node, settled bool) metav1.Condition {
	byName := map[string]*corev1.Node{}
	for _, node := range nodes {
		byName[node.Name] = node
	}
	lost := newGrouping(known.large)
	var off []string
	for _, entry := range known.listed {
		switch node := byName[entry.Name]; {
		case !notReporting(entry):
		case node != nil && node.Spec.Unschedulable && isNotReady(node):
			off = append(off, entry.Name)
		default:
			lost.add(entry.Name, lostMessage(entry, node))
		}
		delete(byName, entry.Name)
	}
	maps.DeleteFunc(byName, func(name string, _ *corev1.Node) bool { return known.large && !settled || known.unlisted(name) })
	condition := asExpected(akriv0.ConditionNodesReporting, "reports from "+plural(known.reporting, "node"))
	introduction := ", none yet from "
	switch {
	case len(lost.problems) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, akriv0.ReasonNodeNotReporting
		condition.Message, introduction = summarize("", lost.problems), "; no report yet from "
	case known.reporting == 0 && len(off) == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, akriv0.ReasonNoReport
		condition.Message, introduction = "no node has reported yet", ": "
	}
	if len(off) > 0 {
		condition.Message = clip(condition.Message+"; cordoned and not ready: "+strings.Join(off, ", "), maxMessage)
	}
	if len(byName) > 0 {
		condition.Message = clip(condition.Message+introduction+listByTaints(byName), maxMessage)
	}
	return condition
}

// lostMessage returns the message on a node that no longer reports. The Node may be nil.
func lostMessage(entry akriv0.NodeStatus, node *corev1.Node) string {
	message := "no report since " + entry.NotReportingSince.UTC().Format(time.RFC3339)
	switch {
	case node != nil && isNotReady(node):
		return message + "; the Node is not ready"
	case taintsOf(node) != "":
		return message + "; check that discovery-operator is running there and tolerates " + taintsOf(node)
	default:
		return message + "; check that discovery-operator is running there"
	}
}

// listByTaints returns for example "node-c, node-d with the taint dedicated=gpu:NoSchedule;
// node-e".
func listByTaints(byName map[string]*corev1.Node) string {
	grouped := newGrouping(false)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		grouped.add(name, taintsOf(byName[name]))
	}
	var parts []string
	for _, group := range grouped.problems {
		part := group.on()
		if group.message != "" {
			part += " with " + group.message
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func isNotReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// taintsOf returns for example "the taint dedicated=gpu:NoSchedule". The Node may be nil.
func taintsOf(node *corev1.Node) string {
	if node == nil || len(node.Spec.Taints) == 0 {
		return ""
	}
	var taints []string
	for i := range node.Spec.Taints {
		taints = append(taints, node.Spec.Taints[i].ToString())
	}
	slices.Sort(taints)
	return "the taint " + strings.Join(taints, ", the taint ")
}
