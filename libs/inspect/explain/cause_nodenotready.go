package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// NodeNotReady means that Kubernetes cannot use the node.
const NodeNotReady CauseID = "NodeNotReady"

func init() { register(rule{NodeNotReady, LinkResource, 0, nodeNotReady}) }

func nodeNotReady(t target) []Cause {
	var causes []Cause
	for _, place := range t.places() {
		if !NodeReady(place.node) {
			name := place.node.Name
			causes = append(causes, Cause{
				Subject: &akriv0.Subject{Kind: "Node", Name: name}, Message: name + " is not ready",
				Remedies: []Remedy{{Text: "Find out why.", Command: "kubectl describe node " + name}},
			})
		}
	}
	return causes
}
