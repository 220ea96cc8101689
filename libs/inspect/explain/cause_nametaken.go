package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// NameTaken means that another Configuration uses the name.
const NameTaken CauseID = "NameTaken"

func init() {
	register(rule{NameTaken, LinkAccepted, 1, whenFalse(akriv0.ConditionDevicesAccepted, akriv0.ReasonNameTaken, func(t target) []Remedy {
		release := remedy("As an administrator, release the name if the Configuration that had it was deleted.",
			`kubectl patch configmap akri-names --namespace AKRI_NAMESPACE --type=json --patch='[{"op":"remove","path":"/data/%s"}]'`,
			akriv0.NameKey(t.configuration.Name))
		return []Remedy{release, rename(t.configuration, "another name")}
	})})
}
