package explain

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// HandlerOffline means that the handler has registered and cannot be reached.
const HandlerOffline CauseID = "HandlerOffline"

func init() {
	register(rule{HandlerOffline, LinkHandler, 1, whenReported(akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerOffline, checkHandler)})
}

func checkHandler(t target) []Remedy {
	selector := "--all-namespaces --output wide"
	if handler, own := catalog.Find(t.configuration.Spec.DiscoveryHandler.Name); own {
		selector = fmt.Sprintf("--namespace %s --output wide --selector %s=%s", t.nodeNamespace(), ComponentLabel, handler.Component)
	}
	return []Remedy{remedy("Check that the Pods of the handler run.", "kubectl get pods %s", selector)}
}
