package e2e_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ownPod(name, resource string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ghcr.io/akri-mesh/sample-broker:dev
    imagePullPolicy: IfNotPresent
    readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}
    resources:
      limits: {"akri.sh/` + resource + `": "1"}
`
}

func ownPods(t *testing.T) {
	apply(t, echoConfiguration("e2e-own", 1, "", "foo0", "foo1"))
	awaitInstances(t, "default", "e2e-own", "e2e-own-8120fe", "e2e-own-a19705")

	apply(t, ownPod("by-instance", "e2e-own-8120fe"))
	pod := awaitReadyPod(t, "default", "by-instance")
	require.Equal(t, "foo0", query(t, pod).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])

	// Only the other device is free.
	apply(t, ownPod("by-configuration", "e2e-own"))
	pod = awaitReadyPod(t, "default", "by-configuration")
	response := query(t, pod)
	require.Equal(t, "foo1", response.Env["DEBUG_ECHO_DESCRIPTION_A19705"])
	require.Equal(t, "foo1", response.Env["DEBUG_ECHO_DESCRIPTION"])

	if selected.dynamic {
		requireClaims(t, "e2e-own-8120fe", 1)
		requireClaims(t, "e2e-own-a19705", 1)
		return
	}
	usage := map[string]string{}
	for _, instance := range instances(t, "default", "e2e-own") {
		maps.Copy(usage, instance.Spec.DeviceUsage)
	}
	require.NotEmpty(t, usage["e2e-own-8120fe-0"])
	require.NotContains(t, usage["e2e-own-8120fe-0"], ":")
	require.True(t, strings.HasPrefix(usage["e2e-own-a19705-0"], "C:"), "%v", usage)
	require.True(t, strings.HasSuffix(usage["e2e-own-a19705-0"], ":"+pod.Spec.NodeName), "%v", usage)
}
