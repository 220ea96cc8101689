package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quotaOfDevices limits the devices of a namespace by the name of the extended resource, as with
// device plugins.
func quotaOfDevices(t *testing.T) {
	const namespace = "e2e-devices"
	apply(t, inNamespace(namespace, echoConfiguration("e2e-devices", 3, "", "foo0"), "")+`---
apiVersion: v1
kind: ResourceQuota
metadata: {name: one, namespace: `+namespace+`}
spec: {hard: {requests.akri.sh/e2e-devices: "1"}}
`)
	first, second := podIn(namespace, "first"), podIn(namespace, "second")
	apply(t, first)
	awaitReadyPod(t, namespace, "first")

	err := akri.ApplyText(t.Context(), second)
	require.ErrorContains(t, err, "exceeded quota: one")

	require.NoError(t, akri.DeleteText(t.Context(), first))
	apply(t, second)
	awaitReadyPod(t, namespace, "second")
}

func podIn(namespace, name string) string {
	return strings.Replace(ownPod(name, "e2e-devices"), "namespace: default", "namespace: "+namespace, 1)
}

// initContainerWithDevice runs a Pod whose init container requests the only slot of the device, and
// whose container requests it, too. The containers have it one after the other, as with device
// plugins.
func initContainerWithDevice(t *testing.T) {
	const instance = "e2e-init-8120fe"
	apply(t, echoConfiguration("e2e-init", 1, "", "foo0"))
	awaitSlice(t, instance, true)
	apply(t, ownPod("init", "e2e-init")+`
  initContainers:
  - name: first
    image: ghcr.io/akri-mesh/registrar:dev
    imagePullPolicy: IfNotPresent
    args: [--version]
    resources: {limits: {"akri.sh/e2e-init": "1"}}
`)
	pod := awaitReadyPod(t, "default", "init")
	require.Equal(t, "foo0", query(t, pod).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])
	requireClaims(t, instance, 1)

	mappings := pod.Status.ExtendedResourceClaimStatus.RequestMappings
	containers := map[string]string{}
	for _, mapping := range mappings {
		containers[mapping.ContainerName] = mapping.RequestName
	}
	require.Len(t, containers, 2)
	require.Equal(t, containers["first"], containers["main"], "the requests of both containers")
}
