package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// DetailsRefused means that the handler does not accept discoveryDetails.
const DetailsRefused CauseID = "DetailsRefused"

// The rule applies to all reasons for which no rule has a lower rank.
func init() {
	register(rule{DetailsRefused, LinkAccepted, 100, whenFalse(akriv0.ConditionDetailsAccepted, "", correct)})
}
