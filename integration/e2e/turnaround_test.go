package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// turnaround is how soon after a pod ended the next must be admitted.
	turnaround = 2 * time.Second
	// shortDeletions is how often each pod is deleted, unless AKRI_E2E_DELETIONS says otherwise.
	shortDeletions = 5
)

// recreatedPods deletes the pod that has the one slot of a device, again and again: one got it through the Instance, another
// one through the Configuration. Both nodes see both devices.
func recreatedPods(t *testing.T) {
	count := shortDeletions
	if text := os.Getenv("AKRI_E2E_DELETIONS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err, "AKRI_E2E_DELETIONS")
	}
	apply(t, echoConfiguration("e2e-turn-i", 1, "", "foo0"))
	apply(t, echoConfiguration("e2e-turn-c", 1, "", "foo0"))
	for workload, resource := range map[string]string{"by-instance": "e2e-turn-i-8120fe", "by-configuration": "e2e-turn-c"} {
		awaitShown(t, resource, 2)
		t.Run(workload, func(t *testing.T) {
			t.Parallel()
			recreate(t, workload, resource, count)
		})
	}
}

func recreate(t *testing.T, workload, resource string, count int) {
	t.Helper()
	pods := follow(t, workload)
	apply(t, deployment(workload, resource, 1))
	former := awaitRunning(t, workload, 1)[0]
	awaitShown(t, resource, 1) // the scheduler has heard from the kubelets who has the slot
	took := make([]time.Duration, 0, count)
	for range count {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), former.Name, metav1.DeleteOptions{}))
		next := awaitOther(t, workload, former.Name)
		took = append(took, pods.between(t, former.Name, next.Name))
		former = next
	}
	slices.Sort(took)
	t.Logf("%d deletions: the next pod was admitted %s (median), %s (longest) after the one before ended", count,
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	require.Empty(t, pods.refusals(), "pods that the kubelet did not admit")
	require.LessOrEqual(t, took[len(took)-1], turnaround)
}

// awaitOther waits for the one pod of the workload to be another one.
func awaitOther(t *testing.T, workload, former string) corev1.Pod {
	t.Helper()
	var next corev1.Pod
	await(t, "the pod after "+former, func(ctx context.Context) error {
		running, err := runningPods(ctx, workload)
		if err != nil {
			return err
		}
		if len(running) != 1 {
			return fmt.Errorf("%d run", len(running))
		}
		next = running[0]
		return nil
	})
	return next
}

// crowdedDevice has more takers on two nodes than its capacity.
func crowdedDevice(t *testing.T) {
	apply(t, echoConfiguration("e2e-crowd", 3, "", "foo0"))
	awaitShown(t, "e2e-crowd-8120fe", 6)
	pods := follow(t, "crowd")
	apply(t, deployment("crowd", "e2e-crowd-8120fe", 5))
	awaitRunning(t, "crowd", 3)
	awaitShown(t, "e2e-crowd-8120fe", 3)
	running := awaitRunning(t, "crowd", 3)
	t.Logf("not admitted before the scheduler knew: %s", pods.storm())
	for range 3 {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), running[0].Name, metav1.DeleteOptions{}))
		former := running[0].Name
		await(t, "another pod in the place of "+former, func(ctx context.Context) (err error) {
			running, err = runningPods(ctx, "crowd")
			if err != nil {
				return err
			}
			if len(running) != 3 || running[0].Name == former || running[1].Name == former || running[2].Name == former {
				return fmt.Errorf("%d run", len(running))
			}
			return nil
		})
		held := 0
		for _, holder := range instances(t, "default", "e2e-crowd")[0].Spec.DeviceUsage {
			if holder != "" {
				held++
			}
		}
		require.Equal(t, 3, held)
	}
	t.Logf("not admitted in all: %s", pods.storm())
}
