package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const description = "DEBUG_ECHO_DESCRIPTION"

// preferredDevice applies the sample whose first Pod gets the preferred device, and the second one
// the other.
func preferredDevice(t *testing.T) {
	// The scheduler takes the other device if it sees that first.
	apply(t, sample(t, "dra-preferred.yaml", "replicas: 2", "replicas: 0"))
	awaitSlice(t, "dra-preferred-8120fe", true)
	awaitSlice(t, "dra-preferred-a19705", true)
	apply(t, sample(t, "dra-preferred.yaml", "replicas: 2", "replicas: 1"))
	first := awaitRunning(t, "dra-preferred", 1)[0]
	require.Equal(t, "foo1", environment(t, &first, "app")[description])
	apply(t, sample(t, "dra-preferred.yaml"))
	var descriptions []string
	for _, pod := range awaitRunning(t, "dra-preferred", 2) {
		descriptions = append(descriptions, environment(t, &pod, "app")[description])
	}
	require.ElementsMatch(t, []string{"foo0", "foo1"}, descriptions)
}

// pairOfDevices applies the sample of a Pod with devices of two Configurations.
func pairOfDevices(t *testing.T) {
	apply(t, sample(t, "dra-pair.yaml"))
	pod := awaitRunning(t, "dra-pair", 1)[0]
	env := environment(t, &pod, "app")
	require.Equal(t, "foo0", env[description+"_8120FE"])
	require.Equal(t, "foo1", env[description+"_A19705"])
	requireClaims(t, "dra-pair-camera-8120fe", 1)
	requireClaims(t, "dra-pair-accelerator-a19705", 1)
}

// diagnosedDevice applies the sample with admin access: a second Pod uses the device without a
// slot.
func diagnosedDevice(t *testing.T) { diagnose(t) }

func diagnose(t *testing.T, replacements ...string) {
	t.Helper()
	apply(t, sample(t, "dra-diagnostics.yaml", replacements...))
	app := awaitRunning(t, "dra-diagnostics", 1)[0]
	var diagnostics corev1.Pod
	pods := akri.Kubernetes.CoreV1().Pods("dra-diagnostics")
	awaitObjects(t, "the Pod for diagnostics", pods, metav1.ListOptions{}, func(found []corev1.Pod) error {
		if len(found) != 1 || found[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the Pods are %+v", found)
		}
		diagnostics = found[0]
		return nil
	})
	require.Equal(t, "foo0", environment(t, &app, "app")[description])
	require.Equal(t, "foo0", environment(t, &diagnostics, "app")[description])
	requireClaims(t, "dra-diagnostics-8120fe", 1)
}
