package explain

// AllocationRefused means that device-plugin-host refused the device.
const AllocationRefused CauseID = "AllocationRefused"

func init() { register(rule{AllocationRefused, LinkAdmitted, 2, allocationRefused}) }

func allocationRefused(t target, report func(Cause)) {
	if t.pod.Status.Reason == "UnexpectedAdmissionError" {
		report(Cause{Message: t.refusal, Remedies: []Remedy{
			deletePod(applyAgain, t.pod),
			remedy("Read the logs of device-plugin-host on the node.", "kubectl logs --tail=50 --namespace %s --selector %s=%s",
				t.nodeNamespace(), ComponentLabel, devicePluginHost),
		}})
	}
}
