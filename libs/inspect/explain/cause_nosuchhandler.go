package explain

import (
	"fmt"
	"strconv"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// NoSuchHandler means that no handler has the name in the Configuration.
const NoSuchHandler CauseID = "NoSuchHandler"

func init() { register(rule{NoSuchHandler, LinkHandler, 0, noSuchHandler}) }

func noSuchHandler(t target) []Cause {
	registered := condition(t.configuration, akriv0.ConditionHandlerRegistered)
	problems := problemsOf(t.configuration, akriv0.ReasonHandlerNotRegistered)
	if len(problems) == 0 && registered.Reason != akriv0.ReasonHandlerNotRegistered {
		return nil
	}

	cause := problemCause(problems, registered.Message)
	name := t.configuration.Spec.DiscoveryHandler.Name
	if handler, own := catalog.Find(name); own {
		cause.Remedies = []Remedy{{Text: "Enable the handler.", Command: t.upgrade("--set " + handler.Value + "=true --wait")}}
		return []Cause{cause}
	}

	var registeredNames []string
	for _, problem := range problems {
		registeredNames = append(registeredNames, problem.Evidence...)
	}
	if similar := nearest(name, registeredNames); plainName.MatchString(similar) {
		cause.Remedies = append(cause.Remedies, Remedy{
			Text: fmt.Sprintf("Use the handler %q, if the name is misspelt.", similar),
			Command: fmt.Sprintf(`kubectl patch configuration.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"discoveryHandler":{"name":%q}}}'`,
				t.configuration.Name, t.configuration.Namespace, similar),
		})
	}
	cause.Remedies = append(cause.Remedies, Remedy{
		Text: "Run a Discovery Handler that registers as " + strconv.Quote(name) + ".", Command: "kubectl apply -f HANDLER.yaml",
	})
	return []Cause{cause}
}
