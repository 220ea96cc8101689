package explain

import "fmt"

// SchedulerBypassed means that a Pod runs without its device, because it was created with the name
// of its node, so that the scheduler did not allocate the device.
const SchedulerBypassed CauseID = "SchedulerBypassed"

func init() { register(rule{SchedulerBypassed, LinkSlot, 1, schedulerBypassed}) }

// schedulerBypassed finds Pods that run on a node that uses claims and have none. The kubelet
// ignores a resource that no device plugin advertises.
func schedulerBypassed(t target, report func(Cause)) {
	name := t.pod.Spec.NodeName
	node := t.nodeNamed(name)
	if t.unheld == "" || t.unheldClaim || node == nil || !t.usesClaims(node) || t.pod.Status.ExtendedResourceClaimStatus != nil {
		return
	}
	report(Cause{
		Message: fmt.Sprintf("the Pod runs on %s without %s: it has no ResourceClaim, because the scheduler does not process a Pod that is created with spec.nodeName",
			name, t.unheld),
		Remedies: []Remedy{deletePod("Create the Pod with a nodeSelector instead of nodeName: {kubernetes.io/hostname: "+name+"}.", t.pod)},
	})
}
