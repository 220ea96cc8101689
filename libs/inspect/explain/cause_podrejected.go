package explain

// PodRejected means that the kubelet rejected the Pod for a reason other than the device.
const PodRejected CauseID = "PodRejected"

const applyAgain = "Delete the Pod. Its controller creates another one; otherwise apply its manifest again."

// The rule applies to all reasons for which no rule has a lower rank.
func init() {
	register(rule{PodRejected, LinkAdmitted, 100, refusedWith("", func(t target) []Remedy {
		return []Remedy{deletePod(applyAgain, t.pod), remedy("Read what the node has left.", "kubectl describe node %s", t.pod.Spec.NodeName)}
	})})
}
