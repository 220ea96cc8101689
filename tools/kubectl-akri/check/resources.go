package check

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// resources states how Pods get devices, if the cluster decides it.
func resources(facts Facts) []Result {
	const name = "how Pods get devices"
	record := facts.Resources
	if record == nil {
		return nil
	}
	decided, reason := record[akriv0.ResourcesKey], record[akriv0.ResourcesReasonKey]
	switch decided {
	case "":
		return []Result{{
			Name: name, Outcome: Warning, Message: "not decided yet: no device has an Instance before",
			Remedies: []explain.Remedy{logsOf("dra-controller", "Read what the decision waits for.")},
		}}
	case akriv0.ResourcesDRA, akriv0.ResourcesDevicePlugin:
	default:
		return []Result{{
			Name: name, Outcome: Failed,
			Message:  fmt.Sprintf("the ConfigMap %s has %q, which is neither %s nor %s", akriv0.ResourcesConfigMap, decided, akriv0.ResourcesDRA, akriv0.ResourcesDevicePlugin),
			Remedies: []explain.Remedy{recordResources(facts, "Correct it.", akriv0.ResourcesDevicePlugin)},
		}}
	}

	result := passed(name, decided)
	if reason != "" {
		result.Message += fmt.Sprintf(", decided at %s (%s: %s)", record[akriv0.ResourcesDecidedAtKey], reason, record[akriv0.ResourcesMessageKey])
	}
	if decided == akriv0.ResourcesDevicePlugin && reason != "" && facts.HasDRA {
		result.Message += "; Dynamic Resource Allocation is possible now"
		result.Remedies = []explain.Remedy{
			{Text: "Move a node.", Command: fmt.Sprintf("kubectl label node NODE %s=%s", akriv0.ResourcesLabel, akriv0.ResourcesDRA)},
			recordResources(facts, "Then all others.", akriv0.ResourcesDRA),
		}
	}
	return []Result{result}
}

func recordResources(facts Facts, text, value string) explain.Remedy {
	return explain.Remedy{Text: text, Command: fmt.Sprintf(`kubectl patch configmap %s --namespace %s --patch '{"data":{"%s":"%s"}}'`,
		akriv0.ResourcesConfigMap, facts.Namespace, akriv0.ResourcesKey, value)}
}
