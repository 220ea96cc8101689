package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const otherTag = "other"

func scaleAndSwap(t *testing.T) {
	apply(t, echoConfiguration("e2e-swap", 2, broker, "foo0", "foo1"))
	awaitBrokers(t, "default", "e2e-swap", 4)
	before := observe(t, "e2e-swap")

	require.NoError(t, akri.Install(t.Context(), "instance-writer.replicas=3"))
	require.Len(t, servicePods(t, "instance-writer"), 3)
	require.Equal(t, before, observe(t, "e2e-swap"))

	swapped := selected.swapped
	tagImages(t, swapped...)
	values := []string{"instance-writer.replicas=3"}
	for _, service := range swapped {
		values = append(values, service+".image.tag="+otherTag)
	}
	require.NoError(t, akri.Install(t.Context(), values...))
	for _, service := range swapped {
		for _, pod := range servicePods(t, service) {
			if pod.DeletionTimestamp == nil {
				require.Contains(t, pod.Spec.Containers[0].Image, ":"+otherTag)
			}
		}
	}
	require.Equal(t, before, observe(t, "e2e-swap"))

	// The replaced services work.
	apply(t, echoConfiguration("e2e-after", 1, "", "foo0"))
	awaitInstances(t, "default", "e2e-after", "e2e-after-8120fe")
	apply(t, ownPod("after-swap", "e2e-after"))
	awaitReadyPod(t, "default", "after-swap")
	require.Equal(t, before, observe(t, "e2e-swap"))
}

// tagImages adds a second tag to images on all nodes.
func tagImages(t *testing.T, names ...string) {
	t.Helper()
	for _, node := range akri.Cluster.Nodes() {
		for _, name := range names {
			ref := "ghcr.io/akri-mesh/" + name
			command, err := node.Command(t.Context(), "ctr", "--namespace", "k8s.io", "images", "tag", "--force", ref+":dev", ref+":"+otherTag)
			require.NoError(t, err)
			output, err := command.CombinedOutput()
			require.NoError(t, err, "%s", output)
		}
	}
}
