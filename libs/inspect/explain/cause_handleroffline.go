package explain

import (
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// HandlerOffline means that the handler has registered and cannot be reached.
const HandlerOffline CauseID = "HandlerOffline"

func init() {
	register(rule{HandlerOffline, LinkHandler, 1, whenReported(akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerOffline, checkHandler)})
}

func checkHandler(t target) []Remedy {
	const text = "Check that the Pods of the handler run."
	if handler, own := catalog.Find(t.configuration.Spec.DiscoveryHandler.Name); own {
		return []Remedy{remedy(text, "kubectl get pods --namespace %s --output wide --selector %s=%s", t.nodeNamespace(), ComponentLabel, handler.Component)}
	}
	return []Remedy{remedy(text, "kubectl get pods --all-namespaces --output wide")}
}
