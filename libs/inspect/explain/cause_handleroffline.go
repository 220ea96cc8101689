package explain

import (
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// HandlerOffline means that the handler has registered and cannot be reached.
const HandlerOffline CauseID = "HandlerOffline"

func init() {
	register(rule{HandlerOffline, LinkHandler, 1, handlerOffline})
}

func handlerOffline(t target, report func(Cause)) {
	find := whenReported(akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerOffline, checkHandler)
	find(t, func(cause Cause) {
		t.addProblemOfHandler(&cause)
		report(cause)
	})
}

// addProblemOfHandler adds why a Pod of the handler, which is one of this project, does not run.
func (t target) addProblemOfHandler(cause *Cause) {
	handler, own := catalog.Find(t.configuration.Spec.DiscoveryHandler.Name)
	if !own {
		return
	}
	for _, service := range t.Services() {
		if service.Component != handler.Component {
			continue
		}
		if problem := service.problem(t.Snapshot); problem != nil {
			cause.Message += "; " + service.Component + ": " + problem.Message
			cause.Evidence = append(cause.Evidence, problem.Evidence...)
			return
		}
	}
}

func checkHandler(t target) []Remedy {
	const text = "Check that the Pods of the handler run."
	if handler, own := catalog.Find(t.configuration.Spec.DiscoveryHandler.Name); own {
		return []Remedy{remedy(text, "kubectl get pods --namespace %s --output wide --selector %s=%s", t.nodeNamespace(), ComponentLabel, handler.Component)}
	}
	return []Remedy{remedy(text, "kubectl get pods --all-namespaces --output wide")}
}
