package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// NameTaken means that another Configuration uses the name.
const NameTaken CauseID = "NameTaken"

func init() {
	register(rule{NameTaken, LinkAccepted, 1, whenFalse(akriv0.ConditionDevicesAccepted, akriv0.ReasonNameTaken, func(t target) []Remedy {
		return []Remedy{rename(t.configuration, "another name")}
	})})
}
