package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

// samplesOfTheReadme applies the sample that the README applies, and a Pod that requests a device
// of it. The Jobs of another sample complete.
func samplesOfTheReadme(t *testing.T) {
	for _, name := range []string{"deployment-configuration-level.yaml", "debug-echo-job.yaml"} {
		sample, err := akri.Manifest("deploy", "samples", name)
		require.NoError(t, err)
		apply(t, sample)
	}
	apply(t, ownPod("readme", "configuration-level-8120fe"))
	pod := awaitReadyPod(t, "default", "readme")
	require.Equal(t, "foo0", query(t, pod).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])

	await(t, "completed Jobs of debug-echo-job", func(ctx context.Context) error {
		jobs, err := akri.Kubernetes.BatchV1().Jobs("default").List(ctx, metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=debug-echo-job"})
		if err != nil {
			return err
		}
		var succeeded int32
		for _, job := range jobs.Items {
			succeeded += job.Status.Succeeded
		}
		if succeeded != 2 {
			return fmt.Errorf("%d Pods of %d Jobs have succeeded", succeeded, len(jobs.Items))
		}
		return nil
	})
}
