package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// SpecInvalid means that the webhook would refuse the Configuration.
const SpecInvalid CauseID = "SpecInvalid"

func init() {
	register(rule{SpecInvalid, LinkAccepted, 0, whenFalse(akriv0.ConditionSpecValid, "", correct)})
}
