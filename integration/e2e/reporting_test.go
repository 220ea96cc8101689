package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// nodeStopsReporting deletes discovery-operator on a node with a taint that keeps its Pods away.
// The status names the node and the taint until discovery-operator is back. The Instances stay.
func nodeStopsReporting(t *testing.T, p prometheusServer) {
	t.Helper()
	node := akri.Cluster.Nodes()[1].Name()
	apply(t, echoConfiguration("e2e-reports", 2, "", "foo0"))
	awaitReports := func() akriv0.NodeStatus {
		awaitCondition(t, "default", "e2e-reports", akriv0.ConditionNodesReporting, metav1.ConditionTrue, akriv0.ReasonAsExpected)
		awaitInstances(t, "default", "e2e-reports", "e2e-reports-8120fe")
		return awaitNodeStatus(t, "e2e-reports", node)
	}
	require.NotEmpty(t, awaitReports().Handlers)
	// The handlers of earlier scenarios are offline until their grace ends.
	awaitVerdict(t, "default", "e2e-reports", akriv0.ConditionDevicesWorking, "Works")
	before := observe(t, "e2e-reports")

	setTaints(t, node, corev1.Taint{Key: "dedicated", Value: "e2e", Effect: corev1.TaintEffectNoSchedule})
	t.Cleanup(func() { setTaints(t, node) })
	deletePod(t, servicePodOn(t, selected.process("discovery-operator"), node).Name)
	message := awaitCondition(t, "default", "e2e-reports", akriv0.ConditionNodesReporting, metav1.ConditionFalse, akriv0.ReasonNodeNotReporting)
	require.Regexp(t, "^"+node+": no report since 20.*; check that discovery-operator is running there and tolerates the taint dedicated=e2e:NoSchedule$", message)
	// Before, the cause is that Akri does not run on the node.
	awaitObject(t, "a verdict with the node", akri.Configurations.In("default"), "e2e-reports", func(c *akriv0.Configuration) error {
		verdict := meta.FindStatusCondition(c.Status.Conditions, akriv0.ConditionDevicesWorking)
		if verdict == nil || verdict.Reason != "Partly" || !strings.HasPrefix(verdict.Message, "1 of 1 devices work; NodeNotReporting: "+node+": no report since 20") {
			return fmt.Errorf("the verdict is %+v", verdict)
		}
		return nil
	})
	awaitCondition(t, "default", "e2e-reports", akriv0.ConditionReady, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	require.Empty(t, awaitNodeStatus(t, "e2e-reports", node).Handlers)
	require.Equal(t, before, observe(t, "e2e-reports"))
	p.awaitFiring(t, "AkriNodesNotReporting", `configuration="e2e-reports"`)

	// The node has never reported on this Configuration.
	apply(t, echoConfiguration("e2e-unreported", 1, "", "foo0"))
	message = awaitCondition(t, "default", "e2e-unreported", akriv0.ConditionNodesReporting, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	require.Equal(t, "reports from 1 node, none yet from "+node+" with the taint dedicated=e2e:NoSchedule", message)

	setTaints(t, node)
	require.NotEmpty(t, awaitReports().Handlers)
	require.Equal(t, before, observe(t, "e2e-reports"))
	awaitServices(t)
}

// awaitNodeStatus waits until the status of the Configuration has an entry of the node.
func awaitNodeStatus(t *testing.T, configuration, node string) akriv0.NodeStatus {
	t.Helper()
	var found akriv0.NodeStatus
	configurations := akri.Configurations.In("default")
	awaitObject(t, "status of "+node, configurations, configuration, func(current *akriv0.Configuration) error {
		for _, found = range current.Status.Nodes {
			if found.Name == node {
				return nil
			}
		}
		return fmt.Errorf("the status has the nodes %v", current.Status.Nodes)
	})
	return found
}

func setTaints(t *testing.T, node string, taints ...corev1.Taint) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	require.NoError(t, err)
	_, err = akri.Kubernetes.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), node, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}
