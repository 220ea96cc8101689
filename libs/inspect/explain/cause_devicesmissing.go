package explain

import "fmt"

// DevicesMissing means that fewer devices are found than spec.expectedDevices of the Configuration.
const DevicesMissing CauseID = "DevicesMissing"

func init() { register(rule{DevicesMissing, LinkFound, 1, devicesMissing}) }

func devicesMissing(t target, report func(Cause)) {
	expected := int(t.configuration.Spec.ExpectedDevices)
	if len(t.instances) >= expected {
		return
	}
	report(Cause{
		Message: fmt.Sprintf("%d of %s found", len(t.instances), Plural(expected, "expected device")),
		Remedies: []Remedy{
			remedy("Check that the devices are connected and switched on. List those that are found.",
				"kubectl akri devices --namespace %s", t.configuration.Namespace),
			remedy("Or correct the number.", `kubectl patch configuration.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"expectedDevices":NUMBER}}'`,
				t.configuration.Name, t.configuration.Namespace),
		},
	})
}
