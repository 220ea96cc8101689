package explain

import (
	"fmt"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// NodeWithoutDevice means that a Pod was created with the name of a node that does not see the
// device. The kubelet refuses the Pod if it has the resource, and else runs it without the
// device.
const NodeWithoutDevice CauseID = "NodeWithoutDevice"

func init() {
	register(rule{NodeWithoutDevice, LinkAdmitted, 0, nodeWithoutDevice}, rule{NodeWithoutDevice, LinkSlot, 2, runsWithoutDevice})
}

func runsWithoutDevice(t target, report func(Cause)) {
	if t.unheld != "" && !t.unheldClaim {
		nodeWithoutDevice(t, report)
	}
}

func nodeWithoutDevice(t target, report func(Cause)) {
	for _, name := range requestedDevices(t.pod) {
		nodes := nodesOf(t.instancesOfResource(name))
		if len(nodes) == 0 || slices.Contains(nodes, t.pod.Spec.NodeName) {
			continue
		}
		report(Cause{
			Subject:  subject("Node", "", t.pod.Spec.NodeName),
			Message:  fmt.Sprintf("%s does not see %s; these nodes do: %s", t.pod.Spec.NodeName, akriv0.ResourceName(name), strings.Join(nodes, ", ")),
			Remedies: []Remedy{deletePod("Create the Pod without nodeName, or with one of these nodes.", t.pod)},
		})
	}
}
