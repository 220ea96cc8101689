package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// whyClaim returns a ResourceClaim for a device that the selector selects.
func whyClaim(name, selector string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s, namespace: default}
spec: {devices: {requests: [{name: device, exactly: {deviceClassName: akri.sh, selectors: [{cel: {expression: '%s'}}]}}]}}
`, name, selector)
}

// whyHeld runs a Pod with a claim for the only slot of a device, and another one for the same slot.
func whyHeld(t *testing.T) {
	apply(t, echoConfiguration("why-held", 1, "", "foo0"))
	awaitSlice(t, "why-held-8120fe", true)
	apply(t, namedClaim("why-held-8120fe"))
	apply(t, claimingPod("why-holder", "why-held-8120fe"))
	awaitReadyPod(t, "default", "why-holder")
	apply(t, whyClaim("why-held", `device.attributes["akri.sh"].configuration == "why-held"`))
	apply(t, claimingPod("why-held", "why-held"))
}

// whySelected claims a device with a property that is not published.
func whySelected(t *testing.T) {
	apply(t, echoConfiguration("why-selected", 1, "", "foo0"))
	awaitSlice(t, "why-selected-8120fe", true)
	apply(t, whyClaim("why-selected", `device.attributes["akri.sh"].configuration == "why-selected" && device.attributes["akri.sh"].SERIAL == "X1"`))
	apply(t, claimingPod("why-selected", "why-selected"))
}

// whyLost claims a device that was removed, whose ResourceSlice has a taint.
func whyLost(t *testing.T) {
	evicting := func(device string) string {
		return strings.Replace(echoConfiguration("why-lost", 1, "", device), "name: why-lost,", "name: why-lost, annotations: {akri.sh/lost-devices: NoExecute},", 1)
	}
	apply(t, evicting("foo0"))
	awaitSlice(t, "why-lost-8120fe", true)
	require.NoError(t, akri.ApplyText(t.Context(), evicting("foo1")))
	awaitInstances(t, "default", "why-lost", "why-lost-a19705")
	apply(t, whyClaim("why-lost", `device.attributes["akri.sh"].instance == "why-lost-8120fe"`))
	apply(t, claimingPod("why-lost", "why-lost"))
}

// whyDirect runs a Pod that the scheduler does not see.
func whyDirect(t *testing.T) {
	apply(t, echoConfiguration("why-direct", 1, "", "foo0"))
	awaitSlice(t, "why-direct-8120fe", true)
	apply(t, onNode(akri.Cluster.Nodes()[0], ownPod("why-direct", "why-direct")))
	awaitReadyPod(t, "default", "why-direct")
}

// explainedClaims checks that explain names the cause for Pods with ResourceClaims.
func explainedClaims(t *testing.T) {
	for _, broken := range []brokenCluster{
		{
			prepare: func(t *testing.T) { apply(t, claimingPod("why-absent", "why-absent")) },
			object:  "pod why-absent",
			cause:   "ClaimNotFound", message: "ResourceClaim why-absent", remedy: "kubectl get resourceclaims",
		},
		{
			prepare: whySelected,
			object:  "pod why-selected",
			cause:   "NoDeviceSelected", message: `request "device" of ResourceClaim why-selected`, remedy: "akri.sh/attributes",
		},
		{
			prepare: whyHeld,
			object:  "pod why-held",
			cause:   "CapacityUsed", message: "default/why-holder", remedy: "kubectl patch configuration.akri.sh why-held",
		},
		{
			prepare: whyLost,
			object:  "pod why-lost",
			cause:   "DeviceTainted", message: "akri.sh/lost:NoExecute", remedy: "kubectl akri explain instance why-lost-8120fe",
		},
		{
			prepare: whyDirect,
			object:  "pod why-direct",
			cause:   "SchedulerBypassed", message: "spec.nodeName", remedy: "kubectl delete pod why-direct",
		},
	} {
		t.Run(broken.cause, func(t *testing.T) {
			t.Parallel()
			broken.check(t)
		})
	}
}
