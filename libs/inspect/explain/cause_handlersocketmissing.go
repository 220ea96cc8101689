package explain

import (
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// HandlerSocketMissing means that the socket of a handler does not exist: it was removed, or the
// handler does not run.
const HandlerSocketMissing CauseID = "HandlerSocketMissing"

func init() {
	register(rule{HandlerSocketMissing, LinkHandler, 2, whenReported(akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerSocketMissing, restartHandler)})
}

// restartHandler returns how to restart the handler on each node that reports the problem. A
// handler creates its socket when it starts.
func restartHandler(t target) []Remedy {
	handler, own := catalog.Find(t.configuration.Spec.DiscoveryHandler.Name)
	var remedies []Remedy
	_, nodes := t.problems(akriv0.ReasonHandlerSocketMissing)
	for _, node := range nodes {
		if !own {
			remedies = append(remedies, remedy("Restart the handler's Pod on "+node+": find it, and delete it.",
				"kubectl get pods --all-namespaces --output wide --field-selector spec.nodeName=%s", node))
			continue
		}
		for _, pod := range t.podsOn(node, handler.Component, agent) {
			remedies = append(remedies, deletePod("Restart the handler's Pod on "+node+".", pod))
		}
	}
	if len(remedies) == 0 {
		return checkHandler(t) // it does not run
	}
	return remedies
}
