package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// PropertyNotFound means that a Secret, a ConfigMap or a key does not exist.
const PropertyNotFound CauseID = "PropertyNotFound"

func init() {
	register(rule{PropertyNotFound, LinkAccepted, 3, whenFalse(akriv0.ConditionDetailsAccepted, akriv0.ReasonPropertyNotFound, func(t target) []Remedy {
		return []Remedy{edit(t.configuration), remedy("Or create the object.",
			"kubectl create secret generic NAME --namespace %s --from-literal=KEY=VALUE", t.configuration.Namespace)}
	})})
}
