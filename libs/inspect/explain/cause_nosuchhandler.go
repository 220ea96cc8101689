package explain

import (
	"fmt"
	"strconv"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// NoSuchHandler means that no handler has the name in the Configuration.
const NoSuchHandler CauseID = "NoSuchHandler"

func init() {
	register(rule{NoSuchHandler, LinkHandler, 0, whenReported(akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerNotRegistered, runHandler)})
}

func runHandler(t target) []Remedy {
	name := t.configuration.Spec.DiscoveryHandler.Name
	if handler, own := catalog.Find(name); own {
		return []Remedy{t.upgrade("Enable the handler.", "--set "+handler.Value+"=true --wait")}
	}

	var registered []string
	for _, problem := range problemsOf(t.configuration, akriv0.ReasonHandlerNotRegistered) {
		registered = append(registered, problem.Evidence...)
	}
	run := remedy("Run a Discovery Handler that registers as "+strconv.Quote(name)+".", "kubectl apply -f HANDLER.yaml")
	similar := nearest(name, registered)
	if !plainName.MatchString(similar) {
		return []Remedy{run}
	}
	return []Remedy{remedy(fmt.Sprintf("Use the handler %q, if the name is misspelt.", similar),
		`kubectl patch configuration.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"discoveryHandler":{"name":%q}}}'`,
		t.configuration.Name, t.configuration.Namespace, similar), run}
}
