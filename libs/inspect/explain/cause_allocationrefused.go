package explain

import "fmt"

// AllocationRefused means that device-plugin-host refused the device.
const AllocationRefused CauseID = "AllocationRefused"

func init() { register(rule{AllocationRefused, LinkAdmitted, 1, allocationRefused}) }

func allocationRefused(t target) []Cause {
	if t.pod.Status.Reason != "UnexpectedAdmissionError" {
		return nil
	}
	return []Cause{{Message: t.refusal, Remedies: []Remedy{deletePod(applyAgain, t.pod), {
		Text: "Read the logs of device-plugin-host on the node.",
		Command: fmt.Sprintf("kubectl logs --tail=50 --namespace %s --selector %s=%s", t.nodeNamespace(),
			ComponentLabel, devicePluginHost),
	}}}}
}
