package explain

// NodeNotReady means that Kubernetes cannot use the node.
const NodeNotReady CauseID = "NodeNotReady"

func init() { register(rule{NodeNotReady, LinkResource, 0, nodeNotReady}) }

func nodeNotReady(t target, report func(Cause)) {
	for _, place := range t.places() {
		if name := place.node.Name; !NodeReady(place.node) {
			report(Cause{
				Subject: subject("Node", "", name), Message: name + " is not ready",
				Remedies: []Remedy{remedy("Find out why.", "kubectl describe node %s", name)},
			})
		}
	}
}
