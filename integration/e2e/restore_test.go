package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Configurations of restoredEtcd, by what happens to them after the snapshot. The Pods that use the
// devices of usedSince are replaced by others.
const keptSince, editedSince, deletedSince, createdSince, usedSince = "e2e-kept", "e2e-edited", "e2e-deleted", "e2e-created", "e2e-used"

// restoredEtcd restores etcd from a snapshot while brokers run. Kubelets and the services of Akri
// keep running, with what they have seen since the snapshot. Devices, brokers and slots become
// those of the snapshot, and brokers that have not changed since then are not restarted.
func restoredEtcd(t *testing.T) {
	onlyLong(t, "takes a minute")
	for _, name := range []string{keptSince, editedSince, deletedSince} {
		apply(t, echoConfiguration(name, 2, broker, "foo0"))
	}
	apply(t, echoConfiguration(usedSince, 2, "", "foo0", "foo1"))
	apply(t, ownPod("early", usedSince+"-8120fe"))
	awaitSnapshotState(t)
	unchanged, devices := observe(t, keptSince, editedSince), observe(t, keptSince, editedSince, deletedSince, usedSince)
	snapshot, err := akri.Cluster.SnapshotEtcd(t.Context())
	require.NoError(t, err)

	changeAfterSnapshot(t)
	require.NoError(t, akri.Cluster.RestoreEtcd(t.Context(), snapshot))
	restored := time.Now()
	awaitSnapshotState(t)
	t.Logf("all devices and brokers of the snapshot work %s after the restore", time.Since(restored).Round(time.Second))

	after := observe(t, keptSince, editedSince)
	require.Equal(t, unchanged.brokers, after.brokers)
	require.Equal(t, unchanged.restarts, after.restarts)
	require.Equal(t, devices.instances, observe(t, keptSince, editedSince, deletedSince, usedSince).instances)
	awaitServices(t)
}

// changeAfterSnapshot changes what the restore undoes.
func changeAfterSnapshot(t *testing.T) {
	t.Helper()
	require.NoError(t, akri.DeleteText(t.Context(), echoConfiguration(deletedSince, 2, "", "foo0")))
	awaitBrokers(t, "default", deletedSince, 0)
	require.NoError(t, akri.ApplyText(t.Context(), echoConfiguration(editedSince, 3, broker, "foo0", "foo1")))
	awaitBrokers(t, "default", editedSince, 4)
	apply(t, echoConfiguration(createdSince, 2, broker, "foo0"))
	awaitBrokers(t, "default", createdSince, 2)

	require.NoError(t, akri.DeleteText(t.Context(), ownPod("early", "")))
	awaitFree(t, usedSince+"-8120fe")
	for i := range 2 {
		apply(t, ownPod(fmt.Sprint("late-", i), usedSince+"-a19705"))
		awaitReadyPod(t, "default", fmt.Sprint("late-", i))
	}
}

// awaitSnapshotState waits until everything is as when the snapshot was taken, in the API server
// and on the nodes.
func awaitSnapshotState(t *testing.T) {
	t.Helper()
	const held, free = usedSince + "-8120fe", usedSince + "-a19705"
	for _, name := range []string{keptSince, editedSince, deletedSince} {
		awaitInstances(t, "default", name, name+"-8120fe")
		awaitBrokers(t, "default", name, 2)
		awaitHolders(t, name, "node-a", "node-b")
	}
	node := awaitReadyPod(t, "default", "early").Spec.NodeName
	awaitInstances(t, "default", usedSince, held, free)
	awaitUsage(t, held, "to be held by the Pod", func(usage map[string]string) bool {
		return len(usage) == 2 && slices.Equal(holderNodes(usage), []string{node})
	})
	awaitFree(t, free)
	awaitInstances(t, "default", createdSince)
	awaitBrokers(t, "default", createdSince, 0)

	// A node offers free slots and those that it holds.
	for instance, total := range map[string]int64{
		keptSince + "-8120fe": 2, editedSince + "-8120fe": 2, editedSince + "-a19705": 0, deletedSince + "-8120fe": 2,
		createdSince + "-8120fe": 0, held: 3, free: 4,
	} {
		awaitTotalAllocatable(t, instance, total)
	}
	if selected.dynamic {
		awaitSlice(t, createdSince+"-8120fe", false)
		awaitSlice(t, editedSince+"-a19705", false)
	}
	awaitOnlyExistingPods(t)
	for _, name := range []string{keptSince, editedSince, deletedSince} {
		awaitVerdict(t, "default", name, akriv0.ConditionDevicesWorking, "Works")
		awaitVerdict(t, "default", name, akriv0.ConditionBrokersWorking, "Works")
	}
	await(t, "a check without failures", func(ctx context.Context) error {
		results, err := checkResults(ctx)
		for _, result := range results {
			if result.Outcome == "Failed" {
				err = errors.Join(err, fmt.Errorf("%s: %s", result.Name, result.Message))
			}
		}
		return err
	})
}

// awaitOnlyExistingPods waits until the nodes run no containers of Pods that do not exist.
func awaitOnlyExistingPods(t *testing.T) {
	t.Helper()
	await(t, "the end of containers without a Pod", func(ctx context.Context) error {
		pods, err := akri.Kubernetes.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		exist := podUIDs(pods.Items)
		for _, node := range akri.Cluster.Nodes() {
			containers, err := node.Containers()
			if err != nil {
				return err
			}
			for _, container := range containers {
				if !slices.Contains(values(exist), container.PodUID) {
					return fmt.Errorf("%s runs a container of the Pod %s, which does not exist", node.Name(), container.PodUID)
				}
			}
		}
		return nil
	})
}
