package explain

import (
	"fmt"
	"slices"
)

// DriverMissing means that dra-kubelet-plugin does not run on a node that uses Dynamic Resource
// Allocation.
const DriverMissing CauseID = "DriverMissing"

func init() { register(rule{DriverMissing, LinkResource, 1, driverMissing}) }

func driverMissing(t target, report func(Cause)) {
	if !t.readable("pods") || t.OneNamespace {
		return
	}
	for _, place := range t.places() {
		name := place.node.Name
		if !NodeReady(place.node) || !t.usesClaims(place.node) || slices.ContainsFunc(t.podsOn(name, draKubeletPlugin, agent), PodReady) {
			continue
		}
		report(Cause{
			Subject:  subject("Node", "", name),
			Message:  fmt.Sprintf("%s is not ready on %s, so no Pod there starts with a device", draKubeletPlugin, name),
			Remedies: t.readPods("Read whether its Pod is ready.", name, draKubeletPlugin),
		})
	}
}
