package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// NoDeviceRequested means that the Pod requests no resource of Akri. No rule finds it: nothing else
// can be examined then.
const NoDeviceRequested CauseID = "NoDeviceRequested"

func noDeviceRequested() Cause {
	return Cause{
		ID:       NoDeviceRequested,
		Message:  "no container of the Pod has a resource of " + akriv0.Group + " in its limits, and no ResourceClaim of it requests a device",
		Remedies: []Remedy{remedy("Add a limit. These resources exist:", "kubectl akri devices --all-namespaces")},
	}
}
