package explain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// ResourceNotAdvertised means that the node's kubelet does not have the resource of a device that
// the node sees.
const ResourceNotAdvertised CauseID = "ResourceNotAdvertised"

func init() { register(rule{ResourceNotAdvertised, LinkResource, 2, resourceNotAdvertised}) }

// resourceNotAdvertised reads the capacity of the nodes. A kubelet keeps the resources that it has
// once had.
func resourceNotAdvertised(t target, report func(Cause)) {
	for _, place := range t.places() {
		resource := corev1.ResourceName(akriv0.ResourceName(place.instance.Name))
		capacity := place.node.Status.Capacity[resource]
		if !NodeReady(place.node) || t.usesClaims(place.node) || !capacity.IsZero() {
			continue
		}
		report(Cause{
			Subject:  subject("Node", "", place.node.Name),
			Message:  fmt.Sprintf("%s does not advertise %s; a new device takes up to 10s", place.node.Name, resource),
			Remedies: t.readPods("Check that device-plugin-host runs on the node.", place.node.Name, devicePluginHost),
		})
	}
}
