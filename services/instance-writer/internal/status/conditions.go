package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// rule derives one condition from the problems that belong to it.
type rule struct {
	condition string
	// message of the condition if it is True.
	message string
	// unchecked is the message of the condition if no node works and none has a problem.
	unchecked string
	belongs   func(reason string) bool
	// works reports whether a node is fine. One such node keeps the condition True despite problems
	// that concern only other nodes.
	works func(akriv0.NodeStatus) bool
	// bit stands for works.
	bit Works
}

var rules = []rule{
	{
		akriv0.ConditionHandlerRegistered, "the Discovery Handler is registered",
		"no node has reported a Discovery Handler yet", isHandlerReason, handlerReachable, worksHandler,
	},
	{
		akriv0.ConditionDetailsAccepted, "the Discovery Handler accepts the details",
		"no Discovery Handler can check the details; see HandlerRegistered", isDetailsReason, canDiscover, worksDiscovery,
	},
	{
		akriv0.ConditionDevicesAccepted, "every device has an Instance",
		"no Discovery Handler has sent a list of devices yet", isDeviceReason, hasList, worksList,
	},
}

func isHandlerReason(reason string) bool {
	switch reason {
	case akriv0.ReasonHandlerNotRegistered, akriv0.ReasonHandlerOffline, akriv0.ReasonHandlerSocketMissing:
		return true
	}
	return false
}

func isDetailsReason(reason string) bool {
	switch reason {
	case akriv0.ReasonInvalidDetails, akriv0.ReasonPropertyNotFound, akriv0.ReasonPropertyForbidden, akriv0.ReasonDiscoverFailed:
		return true
	}
	return false
}

// isDeviceReason includes unknown reasons, which a node of a newer version may report.
func isDeviceReason(reason string) bool { return !isHandlerReason(reason) && !isDetailsReason(reason) }

// isNodeReason reports whether the problem concerns only its node, not the Configuration.
func isNodeReason(reason string) bool {
	return isHandlerReason(reason) || reason == akriv0.ReasonDiscoverFailed || reason == akriv0.ReasonNodeNotAllowed
}

func handlerReachable(node akriv0.NodeStatus) bool {
	return slices.ContainsFunc(node.Handlers, func(h akriv0.HandlerStatus) bool { return h.Status != akriv0.HandlerOffline })
}

func canDiscover(node akriv0.NodeStatus) bool {
	return handlerReachable(node) && !hasProblem(node, func(reason string) bool { return reason == akriv0.ReasonDiscoverFailed })
}

// hasList reports whether a handler of the node has sent a list of devices.
func hasList(node akriv0.NodeStatus) bool {
	return node.Devices > 0 || handlerReachable(node) && !hasProblem(node, isDetailsReason)
}

func hasProblem(node akriv0.NodeStatus, belongs func(reason string) bool) bool {
	return slices.ContainsFunc(node.Problems, func(p akriv0.Problem) bool { return belongs(p.Reason) })
}

const undecidedMessage = "devices get Instances when dra-controller has decided how Pods get devices; " +
	"it compares the API servers, which can take 10 minutes during an upgrade"

const nothingMatchedRemedy = "; check discoveryDetails; the metrics of Akri's Discovery Handlers count the devices that they examine"

// conditions returns the conditions that follow from what the nodes report.
func (in Input) conditions(nodes summary) []metav1.Condition {
	all := []metav1.Condition{in.nodesReporting(nodes)}
	for _, rule := range rules {
		condition := rule.evaluate(nodes)
		if in.Undecided && condition.Type == akriv0.ConditionDevicesAccepted && condition.Status == metav1.ConditionTrue {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, akriv0.ReasonUndecided, undecidedMessage
		}
		all = append(all, condition)
	}
	found := devicesFound(nodes, in.Instances)
	if found.Status == metav1.ConditionFalse {
		found.Message += nothingMatchedRemedy
	}
	return append(all, slotsReadable(in.MalformedSlots), propertiesAgree(in.DifferingProperties), found)
}

// devicesFound is False if no node has found a device. Nodes that cannot discover do not count.
func devicesFound(nodes summary, devices int) metav1.Condition {
	condition := asExpected(akriv0.ConditionDevicesFound, deviceCount(nodes.withDevices, devices))
	if devices > 0 || nodes.withDevices > 0 {
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionFalse, akriv0.ReasonNothingMatched
	switch {
	case nodes.works&worksExamined == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, akriv0.ReasonNoReport
		condition.Message = "no node has a complete list of devices yet"
	case nodes.large:
		condition.Message = "no device matches on any node"
	default:
		condition.Message = "no device matches on " + join(names(nodes.listed, examined))
	}
	return condition
}

// examined reports whether the node has a complete list of devices.
func examined(node akriv0.NodeStatus) bool {
	return hasList(node) && !hasProblem(node, isHandlerReason)
}

func names(nodes []akriv0.NodeStatus, matches func(akriv0.NodeStatus) bool) []string {
	var names []string
	for _, node := range nodes {
		if matches(node) {
			names = append(names, node.Name)
		}
	}
	return names
}

func asExpected(condition, message string) metav1.Condition {
	return metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: akriv0.ReasonAsExpected, Message: message}
}

// deviceCount returns for example "2 devices on 3 nodes". It counts the nodes that see devices.
func deviceCount(nodes, devices int) string {
	on := plural(nodes, "node")
	if devices == 0 {
		return "devices on " + on + ", none has an Instance yet; see DevicesAccepted"
	}
	return plural(devices, "device") + " on " + on
}

func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}

func slotsReadable(malformedSlots []string) metav1.Condition {
	condition := asExpected(akriv0.ConditionSlotsReadable, "all slot records are valid")
	if len(malformedSlots) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, akriv0.ReasonSlotMalformed
		condition.Message = clip(strings.Join(malformedSlots, "; "), maxMessage)
	}
	return condition
}

func propertiesAgree(differing []string) metav1.Condition {
	condition := asExpected(akriv0.ConditionPropertiesAgree, "nodes that share a device report the same properties")
	if len(differing) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, akriv0.ReasonPropertiesDiffer
		condition.Message = clip("nodes report other properties than the Instance has, which keeps them until no node reports them: "+
			strings.Join(differing, "; "), maxMessage)
	}
	return condition
}

func (r rule) evaluate(nodes summary) metav1.Condition {
	problems, reason := r.problems(slices.DeleteFunc(slices.Clone(nodes.listed), notReporting), nodes.large)
	condition := asExpected(r.condition, r.message)
	works := nodes.works&r.bit != 0
	switch {
	case nodes.reporting == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, akriv0.ReasonNoReport
		condition.Message = "no node reports; see NodesReporting"
	case len(problems) > 0 && (!works || !isNodeReason(reason)):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, summarize("", problems)
	case len(problems) > 0:
		condition.Message = summarize(r.message+"; problems: ", problems)
	case !works:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, akriv0.ReasonNoReport, r.unchecked
	}
	return condition
}
