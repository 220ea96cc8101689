package e2e_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// severalContainers is a Pod with two containers that each request two devices of a Configuration,
// and an init container that requests one.
const severalContainers = `
apiVersion: v1
kind: Pod
metadata: {name: several, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: first
    image: ghcr.io/akri-mesh/registrar:dev
    imagePullPolicy: IfNotPresent
    args: ["--version"]
    resources: {limits: {"akri.sh/e2e-several": "1"}}
  containers:
  - {name: one, image: "cluster.invalid/pause:1", imagePullPolicy: IfNotPresent, resources: {limits: {"akri.sh/e2e-several": "2"}}}
  - {name: other, image: "cluster.invalid/pause:1", imagePullPolicy: IfNotPresent, resources: {limits: {"akri.sh/e2e-several": "2"}}}
`

// severalDevices checks that the two containers have two devices each, and that all differ.
func severalDevices(t *testing.T) {
	onlyDevicePlugins(t, "virtual devices")
	devices := []string{"foo0", "foo1", "bar0", "bar1"}
	apply(t, echoConfiguration("e2e-several", 1, "", devices...))
	awaitInstances(t, "default", "e2e-several", "e2e-several-8120fe", "e2e-several-a19705", "e2e-several-d46b65", "e2e-several-ab76e6")
	apply(t, severalContainers)
	pod := awaitReadyPod(t, "default", "several")
	var got []string
	for _, container := range pod.Spec.Containers {
		env := environment(t, pod, container.Name)
		own := slices.DeleteFunc(slices.Clone(devices), func(device string) bool {
			return env["DEBUG_ECHO_DESCRIPTION_"+strings.ToUpper(akriv0.Digest(device, "", true))] != device
		})
		require.Len(t, own, 2, "%s: %v", container.Name, env)
		require.Contains(t, own, env["DEBUG_ECHO_DESCRIPTION"])
		got = append(got, own...)
	}
	require.ElementsMatch(t, devices, got)
	for _, instance := range instances(t, "default", "e2e-several") {
		for slot, holder := range instance.Spec.DeviceUsage {
			require.True(t, strings.HasPrefix(holder, "C:") && strings.HasSuffix(holder, ":"+pod.Spec.NodeName), "%s is held by %q", slot, holder)
		}
	}
}

// environment returns the environment of the container's process.
func environment(t *testing.T, pod *corev1.Pod, container string) map[string]string {
	t.Helper()
	node, err := akri.Cluster.Node(pod.Spec.NodeName)
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), pod.Namespace, pod.Name, container)
	require.NoError(t, err)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	require.NoError(t, err)
	env := map[string]string{}
	for variable := range strings.SplitSeq(string(text), "\x00") {
		key, value, _ := strings.Cut(variable, "=")
		env[key] = value
	}
	return env
}
