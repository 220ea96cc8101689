package explain

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// HandlerOffline means that the handler has registered and cannot be reached.
const HandlerOffline CauseID = "HandlerOffline"

func init() { register(rule{HandlerOffline, LinkHandler, 1, handlerOffline}) }

func handlerOffline(t target) []Cause {
	registered := condition(t.configuration, akriv0.ConditionHandlerRegistered)
	problems := problemsOf(t.configuration, akriv0.ReasonHandlerOffline)
	if len(problems) == 0 && registered.Reason != akriv0.ReasonHandlerOffline {
		return nil
	}

	selector := "--all-namespaces --output wide"
	if handler, own := catalog.Find(t.configuration.Spec.DiscoveryHandler.Name); own {
		selector = fmt.Sprintf("--namespace %s --output wide --selector %s=%s", t.nodeNamespace(), ComponentLabel, handler.Component)
	}
	cause := problemCause(problems, registered.Message)
	cause.Remedies = []Remedy{{Text: "Check that the Pods of the handler run.", Command: "kubectl get pods " + selector}}
	return []Cause{cause}
}
