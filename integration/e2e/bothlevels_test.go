package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bothLevels runs a pod that requests one device through its Instance and through its
// Configuration, and another pod. Together they use the capacity of three, and no level offers more
// than the rest.
func bothLevels(t *testing.T) {
	onlyDevicePlugins(t, "the resources in the status of nodes")
	const configuration, instance = "e2e-both", "e2e-both-8120fe"
	apply(t, echoConfiguration(configuration, 3, "", "foo0"))
	awaitTotalAllocatable(t, instance, 6)
	both := strings.Replace(ownPod("both-levels", configuration), `limits: {`, `limits: {"akri.sh/`+instance+`": "1", `, 1)
	apply(t, both)
	pod := awaitReadyPod(t, "default", "both-levels")
	require.Equal(t, "foo0", query(t, pod).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])

	apply(t, ownPod("one-level", instance))
	other := awaitReadyPod(t, "default", "one-level")
	held := func(want ...string) func(map[string]string) bool {
		slices.Sort(want)
		return func(usage map[string]string) bool { return slices.Equal(slices.Sorted(maps.Values(usage)), want) }
	}
	awaitUsage(t, instance, "to have three holders", held(pod.Spec.NodeName, "C:0:"+pod.Spec.NodeName, other.Spec.NodeName))
	awaitTotalAllocatable(t, instance, 2)
	awaitTotalAllocatable(t, configuration, 1)

	for _, name := range []string{"both-levels", "one-level"} {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	awaitUsage(t, instance, "to be free", held("", "", ""))
}
