package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// DiscoveryFailed means that the handler returns an error.
const DiscoveryFailed CauseID = "DiscoveryFailed"

func init() {
	register(rule{DiscoveryFailed, LinkAccepted, 4, whenFalse(akriv0.ConditionDetailsAccepted, akriv0.ReasonDiscoverFailed, func(t target) []Remedy {
		logs := remedy("Read the logs of the handler and of discovery-operator.",
			"kubectl logs --prefix --tail=50 --namespace %s --selector %s=%s", t.nodeNamespace(), ComponentLabel, discoveryOperator)
		return []Remedy{logs, edit(t.configuration)}
	})})
}
