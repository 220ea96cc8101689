package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// shortGrace and shortPending stand for the five minutes that both are by default.
	shortGrace   = 8 * time.Second
	shortPending = 15 * time.Second
)

// withoutPatience checks what takes minutes by default. Services are impatient from then on.
func withoutPatience(t *testing.T) {
	require.NoError(t, akri.Install(t.Context(),
		"instance-writer.env.AKRI_NODE_GRACE="+shortGrace.String(), "broker-controller.env.AKRI_PENDING_MAX="+shortPending.String()))
	t.Run("together", func(t *testing.T) {
		t.Run("a broker that is pending on its node for too long is replaced", func(t *testing.T) {
			t.Parallel()
			stuckBroker(t)
		})
		t.Run("brokers and Services leave with a node and come back with it", func(t *testing.T) {
			t.Parallel()
			brokersOfALostNode(t)
		})
	})
}

// stuckBroker is on the node that the other test leaves alone: with capacity for one, the first by name has it, once both see
// the device.
func stuckBroker(t *testing.T) {
	apply(t, echoConfiguration("e2e-stuck", 1, "", "foo0"))
	awaitShown(t, "e2e-stuck-8120fe", 2)
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration("e2e-stuck", 1, neverStarts, "foo0")))
	var first *corev1.Pod
	await(t, "a kubelet to have the broker", func(ctx context.Context) error {
		pods, err := akri.BrokersOf(ctx, "default", "e2e-stuck")
		if err == nil && (len(pods) != 1 || pods[0].Status.StartTime == nil) {
			err = fmt.Errorf("%d brokers", len(pods))
		}
		if err == nil {
			first = &pods[0]
		}
		return err
	})
	next := awaitNextBroker(t, first)
	require.GreaterOrEqual(t, next.CreationTimestamp.Sub(first.Status.StartTime.Time), shortPending)
}

// brokersOfALostNode has a device that both nodes share, and a local one of each.
func brokersOfALostNode(t *testing.T) {
	apply(t, echoConfiguration("e2e-lost", 2, broker, "foo0")+servicesSpec)
	apply(t, zramConfiguration)
	byNode := zramInstances(plug(t, "lost and found"))
	stays, leaves := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	awaitComplete := func() running {
		awaitInstances(t, "default", "e2e-zram", values(byNode)...)
		awaitBrokers(t, "default", "e2e-lost", 2)
		awaitBrokers(t, "default", "e2e-zram", 2)
		awaitHolders(t, "e2e-lost", stays.Name(), leaves.Name())
		awaitHolders(t, "e2e-zram", stays.Name(), leaves.Name())
		awaitService(t, "default", byNode[leaves.Name()]+"-svc", true)
		return observe(t, "e2e-lost", "e2e-zram")
	}
	before := awaitComplete()
	services := serviceUIDs(t, "e2e-lost-svc", "e2e-lost-8120fe-svc", "e2e-zram-svc", byNode[stays.Name()]+"-svc")
	kept := []string{stays.Name() + "-e2e-lost-8120fe-pod", byNode[stays.Name()] + "-pod"}
	awaitLost := func() {
		awaitInstances(t, "default", "e2e-zram", byNode[stays.Name()])
		awaitHolders(t, "e2e-lost", stays.Name())
		awaitHolders(t, "e2e-zram", stays.Name())
		awaitService(t, "default", byNode[leaves.Name()]+"-svc", false)
		awaitLeft(t, leaves.Name(), "e2e-lost", "e2e-zram")
		now := observe(t, "e2e-lost", "e2e-zram")
		for _, pod := range kept {
			require.Equal(t, before.brokers[pod], now.brokers[pod], pod)
		}
		require.Equal(t, services, serviceUIDs(t, "e2e-lost-svc", "e2e-lost-8120fe-svc", "e2e-zram-svc", byNode[stays.Name()]+"-svc"))
	}
	awaitBack := func() {
		after := awaitComplete()
		require.Equal(t, before.slots, after.slots)
		for _, pod := range kept {
			require.Equal(t, before.brokers[pod], after.brokers[pod], pod)
		}
		require.Equal(t, services, serviceUIDs(t, "e2e-lost-svc", "e2e-lost-8120fe-svc", "e2e-zram-svc", byNode[stays.Name()]+"-svc"))
	}

	// Its agents go on reporting: it is out all the same.
	require.NoError(t, leaves.StopKubelet(t.Context()))
	since := markNotReady(t, leaves.Name())
	require.Equal(t, before, observe(t, "e2e-lost", "e2e-zram"), "nothing changes within the grace")
	awaitLost()
	require.GreaterOrEqual(t, time.Since(since), shortGrace)
	require.NoError(t, leaves.StartKubelet(t.Context()))
	awaitBack()

	require.NoError(t, akri.Kubernetes.CoreV1().Nodes().Delete(t.Context(), leaves.Name(), metav1.DeleteOptions{}))
	awaitLost()
	// A kubelet introduces its node when it starts.
	require.NoError(t, leaves.StopKubelet(t.Context()))
	require.NoError(t, leaves.StartKubelet(t.Context()))
	awaitBack()
}

// markNotReady says of a node whose kubelet is silent what Kubernetes says after some 40 s, and returns since when.
func markNotReady(t *testing.T, node string) time.Time {
	t.Helper()
	since := time.Now().Truncate(time.Second) // as precise as the API is
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`,
		since.UTC().Format(time.RFC3339))
	_, err := akri.Kubernetes.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	return since
}

// awaitLeft waits until no broker of the Configurations is meant to be on the node. Without a kubelet nobody can tell that one
// has ended, and it stays on its way out.
func awaitLeft(t *testing.T, node string, configurations ...string) {
	t.Helper()
	await(t, "brokers to leave "+node, func(ctx context.Context) error {
		for _, configuration := range configurations {
			pods, err := akri.BrokersOf(ctx, "default", configuration)
			if err != nil {
				return err
			}
			for _, pod := range pods {
				if pod.Spec.NodeName == node && pod.DeletionTimestamp == nil {
					return fmt.Errorf("%s is there", pod.Name)
				}
			}
		}
		return nil
	})
}

func serviceUIDs(t *testing.T, names ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range names {
		service, err := akri.Kubernetes.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		found[name] = string(service.UID) + " " + service.Spec.ClusterIP
	}
	return found
}
