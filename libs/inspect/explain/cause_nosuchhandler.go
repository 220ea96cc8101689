package explain

import (
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// NoSuchHandler means that no handler has the name in the Configuration.
const NoSuchHandler CauseID = "NoSuchHandler"

func init() {
	register(rule{NoSuchHandler, LinkHandler, 0, noSuchHandler})
}

// noSuchHandler also finds nodes without a handler that runs on others, if it should run on them:
// handlers of others may run on chosen nodes.
func noSuchHandler(t target, report func(Cause)) {
	find := whenReported(akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerNotRegistered, runHandler)
	find(t, func(cause Cause) {
		isSomewhere := condition(t.configuration, akriv0.ConditionHandlerRegistered).Status == metav1.ConditionTrue
		_, without := t.problems(akriv0.ReasonHandlerNotRegistered)
		if !isSomewhere || slices.ContainsFunc(without, t.shouldRunHandler) {
			t.addProblemOfHandler(&cause)
			report(cause)
		}
	})
}

// shouldRunHandler reports whether the node has a Pod for the handler, which is one of this
// project.
func (t target) shouldRunHandler(node string) bool {
	handler, own := catalog.Find(t.configuration.Spec.DiscoveryHandler.Name)
	return own && len(t.podsOn(node, handler.Component, agent)) > 0
}

func runHandler(t target) []Remedy {
	name := t.configuration.Spec.DiscoveryHandler.Name
	handler, own := catalog.Find(name)
	switch {
	case own && len(ofComponents(t.DaemonSets, handler.Component)) > 0:
		return []Remedy{
			remedy("See whether the Pods of the handler run.", "kubectl get pods --output wide %s", t.selectPods(handler.Component)),
			t.readServiceLogs("Read why it does not register.", handler.Component),
		}
	case own:
		// The value adds a DaemonSet, and changes no other one.
		return []Remedy{t.upgrade("Enable the handler.", "--set %s=true --wait", handler.Value)}
	}

	run := remedy("Run a Discovery Handler that registers as "+strconv.Quote(name)+".", "kubectl apply -f HANDLER.yaml")
	registered := t.registeredHandlers()
	if nearest(name, registered) == "" {
		return []Remedy{run}
	}
	similar := nearest(name, ofThisProject(registered))
	if similar == "" {
		misspelt := edit(t.configuration)
		misspelt.Text = "Correct the name of the handler, if it is misspelt."
		return []Remedy{misspelt, run}
	}
	return []Remedy{remedy(fmt.Sprintf("Use the handler %q, if the name is misspelt.", similar),
		`kubectl patch configuration.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"discoveryHandler":{"name":%q}}}'`,
		t.configuration.Name, t.configuration.Namespace, similar), run}
}

// registeredHandlers returns the names that nodes report. A node can report any name, so a remedy
// suggests only one that ofThisProject returns.
func (t target) registeredHandlers() []string {
	var registered []string
	problems, _ := t.problems(akriv0.ReasonHandlerNotRegistered)
	for _, problem := range problems {
		registered = append(registered, problem.Evidence...)
	}
	return registered
}

func ofThisProject(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		_, own := catalog.Find(name)
		return !own
	})
}
