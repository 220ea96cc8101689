package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// DeviceRefused means that Akri does not accept a device of the handler.
const DeviceRefused CauseID = "DeviceRefused"

func init() { register(rule{DeviceRefused, LinkInstances, 1, deviceRefused}) }

// deviceRefused finds all reasons of which no other cause is.
func deviceRefused(t target, report func(Cause)) {
	switch condition(t.configuration, akriv0.ConditionDevicesAccepted).Reason {
	case akriv0.ReasonNameTaken, akriv0.ReasonDigestCollision, akriv0.ReasonNodeNotAllowed:
		return
	}
	whenFalse(akriv0.ConditionDevicesAccepted, "", func(target) []Remedy {
		return []Remedy{remedy("Correct the Discovery Handler, which sent the device.", "kubectl akri handlers")}
	})(t, report)
}
