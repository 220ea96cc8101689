package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// DigestCollision means that two devices have the same name.
const DigestCollision CauseID = "DigestCollision"

func init() {
	register(rule{DigestCollision, LinkInstances, 0, whenFalse(akriv0.ConditionDevicesAccepted, akriv0.ReasonDigestCollision, func(t target) []Remedy {
		return []Remedy{rename(t.configuration, "another name of at most 49 characters")}
	})})
}
