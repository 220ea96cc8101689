package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// rule makes one condition of the problems that belong to it.
type rule struct {
	condition string
	fine      string
	belongs   func(reason string) bool
	// works tells whether a node does well enough for the rest to be tolerated.
	works func(akriv0.NodeStatus) bool
}

var rules = []rule{
	{akriv0.ConditionHandlerRegistered, "the Discovery Handler is registered", ofHandler, handlerReachable},
	{akriv0.ConditionDetailsAccepted, "the Discovery Handler accepts the details", ofDetails, discovers},
	{akriv0.ConditionDevicesAccepted, "every device became part of an Instance", ofDevices, discovers},
}

func ofHandler(reason string) bool {
	return reason == akriv0.ReasonHandlerNotRegistered || reason == akriv0.ReasonHandlerOffline
}

func ofDetails(reason string) bool {
	switch reason {
	case akriv0.ReasonInvalidDetails, akriv0.ReasonPropertyNotFound, akriv0.ReasonPropertyForbidden, akriv0.ReasonDiscoverFailed:
		return true
	}
	return false
}

// ofDevices also takes reasons that a newer node may know.
func ofDevices(reason string) bool { return !ofHandler(reason) && !ofDetails(reason) }

// ofNode are the problems of a node rather than of the Configuration.
func ofNode(reason string) bool { return ofHandler(reason) || reason == akriv0.ReasonDiscoverFailed }

func handlerReachable(node akriv0.NodeStatus) bool {
	return slices.ContainsFunc(node.Handlers, func(h akriv0.HandlerStatus) bool { return h.Status != "Offline" })
}

func discovers(node akriv0.NodeStatus) bool {
	return handlerReachable(node) && !slices.ContainsFunc(node.Problems, func(p akriv0.Problem) bool {
		return p.Reason == akriv0.ReasonDiscoverFailed
	})
}

// conditions of the nodes' state and of slots, Ready first.
func conditions(nodes []akriv0.NodeStatus, unreadable []string) []metav1.Condition {
	ready := metav1.Condition{Type: akriv0.ConditionReady, Status: metav1.ConditionTrue, Reason: akriv0.ReasonAsExpected, Message: "all is well"}
	all := []metav1.Condition{ready}
	for _, rule := range rules {
		all = append(all, rule.judge(nodes))
	}
	all = append(all, slotsReadable(unreadable))
	for _, condition := range all[1:] {
		if worse(condition.Status, all[0].Status) {
			all[0].Status, all[0].Reason, all[0].Message = condition.Status, condition.Reason, condition.Message
		}
	}
	return all
}

func slotsReadable(unreadable []string) metav1.Condition {
	condition := metav1.Condition{Type: akriv0.ConditionSlotsReadable, Status: metav1.ConditionTrue, Reason: akriv0.ReasonAsExpected,
		Message: "every slot says who holds it"}
	if len(unreadable) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, akriv0.ReasonSlotMalformed
		condition.Message = clip(strings.Join(unreadable, "; "), maxMessage)
	}
	return condition
}

func worse(a, b metav1.ConditionStatus) bool {
	rank := map[metav1.ConditionStatus]int{metav1.ConditionTrue: 0, metav1.ConditionUnknown: 1, metav1.ConditionFalse: 2}
	return rank[a] > rank[b]
}

func (r rule) judge(nodes []akriv0.NodeStatus) metav1.Condition {
	found, worst := r.problems(nodes)
	condition := metav1.Condition{Type: r.condition, Status: metav1.ConditionTrue, Reason: akriv0.ReasonAsExpected, Message: r.fine}
	switch {
	case len(nodes) == 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, akriv0.ReasonNoReport, "no node has reported yet"
	case len(found) > 0 && (!ofNode(worst) || !slices.ContainsFunc(nodes, r.works)):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, worst, summary("", found)
	case len(found) > 0:
		condition.Message = summary(r.fine+"; but ", found)
	case r.condition == akriv0.ConditionHandlerRegistered && !slices.ContainsFunc(nodes, r.works):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, akriv0.ReasonNoReport, "no node knows of a handler yet"
	}
	return condition
}

// nodeText is what one node has to say.
type nodeText struct{ node, text string }

// problems returns those of this rule, by node, and the reason that decides: one of the
// Configuration before one of a node, the first in the order of the nodes.
func (r rule) problems(nodes []akriv0.NodeStatus) (found []nodeText, worst string) {
	for _, node := range nodes {
		var texts []string
		for _, problem := range node.Problems {
			if !r.belongs(problem.Reason) {
				continue
			}
			texts = append(texts, problem.Message)
			if worst == "" || ofNode(worst) && !ofNode(problem.Reason) {
				worst = problem.Reason
			}
		}
		if len(texts) > 0 {
			found = append(found, nodeText{node.Name, strings.Join(texts, ", ")})
		}
	}
	return found, worst
}

// summary names the nodes one by one for as long as there is room.
func summary(start string, found []nodeText) string {
	var text strings.Builder
	text.WriteString(start)
	for i, one := range found {
		part := one.node + ": " + one.text
		if i > 0 {
			part = "; " + part
		} else {
			part = clip(part, maxMessage-len(start))
		}
		if text.Len()+len(part) > maxMessage {
			fmt.Fprintf(&text, " … and %d more nodes", len(found)-i)
			break
		}
		text.WriteString(part)
	}
	return text.String()
}
