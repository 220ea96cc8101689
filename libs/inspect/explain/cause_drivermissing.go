package explain

import (
	"fmt"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// DriverMissing means that dra-kubelet-plugin does not run on a node that uses Dynamic Resource
// Allocation.
const DriverMissing CauseID = "DriverMissing"

func init() { register(rule{DriverMissing, LinkResource, 1, driverMissing}) }

func driverMissing(t target) []Cause {
	if !t.readable("pods") || t.OneNamespace {
		return nil
	}

	var causes []Cause
	for _, place := range t.places() {
		name := place.node.Name
		if !NodeReady(place.node) || !t.usesClaims(place.node) || slices.ContainsFunc(t.podsOn(name, draKubeletPlugin, agent), PodReady) {
			continue
		}
		causes = append(causes, Cause{
			Subject:  &akriv0.Subject{Kind: "Node", Name: name},
			Message:  fmt.Sprintf("%s is not ready on %s, so no Pod there starts with a device", draKubeletPlugin, name),
			Remedies: t.readPods("Read whether its Pod is ready.", name, draKubeletPlugin),
		})
	}
	return causes
}
