package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bothLevels has a pod that asks for one device by its Instance and by its Configuration, beside another pod: the capacity of
// three is used up, and neither level offers more than that.
func bothLevels(t *testing.T) {
	const configuration, instance = "e2e-both", "e2e-both-8120fe"
	apply(t, echoConfiguration(configuration, 3, "", "foo0"))
	awaitShown(t, instance, 6)
	both := strings.Replace(ownPod("both-levels", configuration), `limits: {`, `limits: {"akri.sh/`+instance+`": "1", `, 1)
	apply(t, both)
	pod := awaitReadyPod(t, "default", "both-levels")
	require.Equal(t, "foo0", ask(t, pod).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])

	apply(t, ownPod("one-level", instance))
	other := awaitReadyPod(t, "default", "one-level")
	held := func(want ...string) func(map[string]string) bool {
		slices.Sort(want)
		return func(usage map[string]string) bool { return slices.Equal(slices.Sorted(maps.Values(usage)), want) }
	}
	awaitUsage(t, instance, "to be held three times", held(pod.Spec.NodeName, "C:0:"+pod.Spec.NodeName, other.Spec.NodeName))
	awaitShown(t, instance, 2)
	awaitShown(t, configuration, 1)

	for _, name := range []string{"both-levels", "one-level"} {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	awaitUsage(t, instance, "to be free", held("", "", ""))
}
