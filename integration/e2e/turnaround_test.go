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

// defaultDeletions is how often each pod is deleted unless AKRI_E2E_DELETIONS is set.
const defaultDeletions = 5

// recreatedPods repeatedly deletes the pod that holds the only slot of a device: one pod requests
// the Instance and another the Configuration. Both nodes see both devices.
func recreatedPods(t *testing.T) {
	count := defaultDeletions
	if text := os.Getenv("AKRI_E2E_DELETIONS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err, "AKRI_E2E_DELETIONS")
	}
	apply(t, echoConfiguration("e2e-turn-i", 1, "", "foo0"))
	apply(t, echoConfiguration("e2e-turn-c", 1, "", "foo0"))
	for workload, resource := range map[string]string{"by-instance": "e2e-turn-i-8120fe", "by-configuration": "e2e-turn-c"} {
		awaitTotalAllocatable(t, resource, 2)
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
	previous := awaitRunning(t, workload, 1)[0]
	awaitTotalAllocatable(t, resource, 1) // the scheduler has the kubelets' new status
	took := make([]time.Duration, 0, count)
	for range count {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), previous.Name, metav1.DeleteOptions{}))
		next := awaitOther(t, workload, previous.Name)
		took = append(took, pods.between(t, previous.Name, next.Name))
		previous = next
	}
	slices.Sort(took)
	t.Logf("%d deletions: the next pod was admitted %s (median), %s (maximum) after the end of the previous one", count,
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	require.Empty(t, pods.rejections(), "pods that the kubelet rejected")
}

// awaitOther waits until the only pod of the workload is another one.
func awaitOther(t *testing.T, workload, previous string) corev1.Pod {
	t.Helper()
	var next corev1.Pod
	await(t, "the pod after "+previous, func(ctx context.Context) error {
		running, err := runningPods(ctx, workload)
		if err != nil {
			return err
		}
		if len(running) != 1 {
			return fmt.Errorf("%d pods run", len(running))
		}
		next = running[0]
		return nil
	})
	return next
}

// crowdedDevice runs more pods on two nodes than the device's capacity.
func crowdedDevice(t *testing.T) {
	apply(t, echoConfiguration("e2e-crowd", 3, "", "foo0"))
	awaitTotalAllocatable(t, "e2e-crowd-8120fe", 6)
	pods := follow(t, "crowd")
	apply(t, deployment("crowd", "e2e-crowd-8120fe", 5))
	awaitRunning(t, "crowd", 3)
	awaitTotalAllocatable(t, "e2e-crowd-8120fe", 3)
	running := awaitRunning(t, "crowd", 3)
	t.Logf("rejected before the node status was updated: %s", pods.summary())
	for range 3 {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), running[0].Name, metav1.DeleteOptions{}))
		previous := running[0].Name
		await(t, "the replacement of pod "+previous, func(ctx context.Context) (err error) {
			running, err = runningPods(ctx, "crowd")
			if err != nil {
				return err
			}
			if len(running) != 3 || running[0].Name == previous || running[1].Name == previous || running[2].Name == previous {
				return fmt.Errorf("%d pods run", len(running))
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
	t.Logf("rejected in total: %s", pods.summary())
}
