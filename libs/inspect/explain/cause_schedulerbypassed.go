package explain

import "fmt"

// SchedulerBypassed means that a Pod runs without its device, because the scheduler did not
// allocate it: the Pod was created with the name of its node, or was bound while its DeviceClass
// was created.
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
		Message: fmt.Sprintf("the Pod runs on %s without %s: it has no ResourceClaim, because it was created with spec.nodeName, "+
			"or because the scheduler bound it in the moment in which the DeviceClass was created", name, t.unheld),
		Remedies: []Remedy{deletePod("Delete the Pod. If it is created with nodeName, use a nodeSelector instead: {kubernetes.io/hostname: "+name+"}.", t.pod)},
	})
}
