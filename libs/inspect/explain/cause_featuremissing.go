package explain

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// FeatureMissing means that the cluster does not allocate extended resources with Dynamic Resource
// Allocation, as before Kubernetes 1.36.
const FeatureMissing CauseID = "FeatureMissing"

func init() { register(rule{FeatureMissing, LinkScheduled, 5, featureMissing}) }

// featureMissing finds a resource that the scheduler looks for in the status of nodes, while all
// nodes that see the devices have them only for ResourceClaims.
func featureMissing(t target, report func(Cause)) {
	for _, name := range requestedDevices(t.pod) {
		node := onlyForClaims(t.Snapshot, t.instancesOfResource(name))
		if node == "" || !t.insufficient(name) {
			continue
		}
		report(Cause{
			Subject: subject("Node", "", node),
			Message: fmt.Sprintf("the nodes with %s use Dynamic Resource Allocation, and this cluster allocates it only through ResourceClaims; "+
				"requests as those of this Pod require Kubernetes 1.36", akriv0.ResourceName(name)),
			Remedies: []Remedy{
				remedy("Let a node that sees the device use device plugins.", "kubectl label node %s %s=%s",
					node, akriv0.ResourcesLabel, akriv0.ResourcesDevicePlugin),
				remedy("Or read the version of the cluster, and whether the feature gate DRAExtendedResource is off.", "kubectl version"),
			},
		})
	}
}

// onlyForClaims returns a node of the Instances if all of their nodes use ResourceClaims.
func onlyForClaims(s *Snapshot, instances []*akriv0.Instance) (last string) {
	for _, instance := range instances {
		for _, name := range instance.Spec.Nodes {
			if node := s.nodeNamed(name); node == nil || !s.usesClaims(node) {
				return ""
			}
			last = name
		}
	}
	return last
}
