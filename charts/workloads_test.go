package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// workload is a DaemonSet, Deployment or Job.
type workload struct {
	metav1.TypeMeta
	Spec struct{ Template corev1.PodTemplateSpec }
}

func component(w workload) string {
	return w.Spec.Template.Labels["app.kubernetes.io/component"]
}

// workloads returns all workloads in rendered manifests.
func workloads(t *testing.T, rendered string) []workload {
	t.Helper()
	found := decode[workload](t, rendered, "DaemonSet", "Deployment", "Job")
	require.NotEmpty(t, found)
	return found
}

// decode returns the objects of the kinds in rendered manifests.
func decode[T any](t *testing.T, rendered string, kinds ...string) []T {
	t.Helper()
	var found []T
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var meta metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(document), &meta))
		if !slices.Contains(kinds, meta.Kind) {
			continue
		}
		var object T
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		found = append(found, object)
	}
	return found
}

// The status of a container of Akri has the end of its log, which can be all that states the
// reason, for example an image for another processor. Containers of brokers are those of users.
func TestStatusesHaveTheEndOfTheLog(t *testing.T) {
	for _, form := range []string{"defaults", "dra", "agent", "custom", "options"} {
		rendered := read(t, "charts/testdata/"+form+".golden.yaml")
		for _, w := range workloads(t, rendered) {
			pod := w.Spec.Template
			if pod.Labels["app.kubernetes.io/part-of"] != "akri" {
				continue
			}
			for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				require.Equal(t, corev1.TerminationMessageFallbackToLogsOnError, container.TerminationMessagePolicy, "%s: %s", form, container.Name)
			}
		}
	}
}
