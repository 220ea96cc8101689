package explain

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// FeatureMissing means that the cluster does not allocate extended resources with Dynamic Resource
// Allocation, as before Kubernetes 1.36.
const FeatureMissing CauseID = "FeatureMissing"

func init() { register(rule{FeatureMissing, LinkScheduled, 4, featureMissing}) }

// featureMissing finds a resource that the scheduler looks for in the status of nodes, while all
// nodes that see the devices have them only for ResourceClaims.
func featureMissing(t target) []Cause {
	var causes []Cause
	for _, name := range requestedDevices(t.pod) {
		if !t.insufficient(name) {
			continue
		}
		node := t.onlyForClaims(t.instancesOfResource(name))
		if node == "" {
			continue
		}

		causes = append(causes, Cause{
			Subject: &akriv0.Subject{Kind: "Node", Name: node},
			Message: fmt.Sprintf("the nodes with %s use Dynamic Resource Allocation, and this cluster allocates it only through ResourceClaims; "+
				"requests as those of this Pod require Kubernetes 1.36", akriv0.ResourceName(name)),
			Remedies: []Remedy{
				{Text: "Let a node that sees the device use device plugins.", Command: fmt.Sprintf("kubectl label node %s %s=%s", node, akriv0.ResourcesLabel, akriv0.ResourcesDevicePlugin)},
				{Text: "Or read the version of the cluster, and whether the feature gate DRAExtendedResource is off.", Command: "kubectl version"},
			},
		})
	}
	return causes
}

// onlyForClaims returns a node of the Instances if all of their nodes use ResourceClaims.
func (s *Snapshot) onlyForClaims(instances []*akriv0.Instance) (last string) {
	for _, instance := range instances {
		for _, name := range instance.Spec.Nodes {
			if node := find(s.Nodes, "", name); node == nil || !s.usesClaims(node) {
				return ""
			}
			last = name
		}
	}
	return last
}
