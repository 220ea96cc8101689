package kubetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
)

// A service writes the object between the read and the write of the test.
func TestEditOfAnObjectThatIsWritten(t *testing.T) {
	all, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	client := all.In("default")
	_, err = client.Create(t.Context(), configuration("edited"), metav1.CreateOptions{})
	require.NoError(t, err)
	write := func(patch string, subresources ...string) {
		_, err := client.Patch(t.Context(), "edited", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		require.NoError(t, err)
	}

	reads := 0
	kubetest.Edit(t, client, "edited", func(c *akriv0.Configuration) {
		if reads++; reads == 1 {
			write(`{"status": {"nodes": [{"name": "a", "devices": 1}]}}`, "status")
		}
		c.Labels = map[string]string{"edited": "true"}
	})
	require.Equal(t, 2, reads)
	kubetest.EditStatus(t, client, "edited", func(c *akriv0.Configuration) {
		if reads++; reads == 3 {
			write(`{"spec": {"capacity": 5}}`)
		}
		c.Status.Nodes = append(c.Status.Nodes, akriv0.NodeStatus{Name: "b"})
	})
	require.Equal(t, 4, reads)

	edited, err := client.Get(t.Context(), "edited", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "true", edited.Labels["edited"])
	require.EqualValues(t, 5, *edited.Spec.Capacity)
	require.Len(t, edited.Status.Nodes, 2)
}
