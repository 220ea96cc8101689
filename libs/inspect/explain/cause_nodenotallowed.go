package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// NodeNotAllowed means that spec.nodes of the Configuration does not allow a node that reports
// devices, or any Node.
const NodeNotAllowed CauseID = "NodeNotAllowed"

func init() {
	register(rule{NodeNotAllowed, LinkActive, 2, whenFalse(akriv0.ConditionNodesReporting, akriv0.ReasonNodeNotAllowed,
		allow("Name a Node of the cluster in spec.nodes, or give a Node the labels of spec.nodes."))})
	register(rule{NodeNotAllowed, LinkInstances, 3, whenReported(akriv0.ConditionDevicesAccepted, akriv0.ReasonNodeNotAllowed,
		allow("If the devices may be on the node, add it to spec.nodes, or give it the labels of spec.nodes. "+
			"Otherwise find out why it reports devices that it was not asked for."))})
}

func allow(text string) func(t target) []Remedy {
	return func(t target) []Remedy {
		change := edit(t.configuration)
		change.Text = text
		return []Remedy{change}
	}
}
