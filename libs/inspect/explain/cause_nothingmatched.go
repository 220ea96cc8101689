package explain

import akriv0 "akri.sh/libs/apis/akri/v0"

// NothingMatched means that the handlers have examined devices, and none matches.
const NothingMatched CauseID = "NothingMatched"

func init() {
	register(rule{NothingMatched, LinkFound, 0, whenFalse(akriv0.ConditionDevicesFound, "", compareDetails)})
}

func compareDetails(t target) []Remedy {
	c := t.configuration
	remedies := []Remedy{remedy("Compare the details with the devices.",
		"kubectl get configuration.akri.sh %s --namespace %s --output jsonpath='{.spec.discoveryHandler.discoveryDetails}'", c.Name, c.Namespace)}
	if c.Spec.DiscoveryHandler.Name == "udev" {
		remedies = append(remedies,
			remedy("List the properties of a device, on its node.", "udevadm info --attribute-walk --name /dev/DEVICE"))
	}
	return append(remedies, edit(c))
}
