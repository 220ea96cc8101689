package explain_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
)

const nodeOff = "node-off"

// TestNodesThatAreOffAreNoFault adds a node that is cordoned and off to each cluster of testdata.
// No verdict changes except that on the node.
func TestNodesThatAreOffAreNoFault(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		before := states(load(t, name))
		s := load(t, name)
		addNodeOff(s)
		after := states(s)
		require.Equal(t, "OutOfService ", after[akriv0.Subject{Kind: "Node", Name: nodeOff}], name)
		for subject, state := range before {
			require.Equal(t, state, after[subject], "%s: %v", name, subject)
		}
	}
}

// states returns the state and the first cause of each subject.
func states(s *explain.Snapshot) map[akriv0.Subject]string {
	found := map[akriv0.Subject]string{}
	for _, v := range explain.Verdicts(s) {
		cause := ""
		if len(v.Causes) > 0 {
			cause = string(v.Causes[0].ID)
		}
		found[v.Subject] = string(v.State) + " " + cause
	}
	return found
}

// addNodeOff adds a node that has reported before it was cordoned and switched off.
func addNodeOff(s *explain.Snapshot) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOff}, Spec: corev1.NodeSpec{Unschedulable: true}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	s.Nodes = append(s.Nodes, node)
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		d.Status.DesiredNumberScheduled++
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: d.Name + "-off", Namespace: d.Namespace, Labels: d.Labels, CreationTimestamp: d.CreationTimestamp}}
		pod.Spec.NodeName, pod.Status.Phase = nodeOff, corev1.PodRunning
		s.Pods = append(s.Pods, pod)
	}
	since := metav1.NewTime(fixture.Now.Add(-time.Hour))
	for i := range s.Configurations {
		if !s.Configurations[i].Spec.Nodes.Allows(nodeOff, nil) {
			continue
		}
		status := &s.Configurations[i].Status
		status.Nodes = append(status.Nodes, akriv0.NodeStatus{Name: nodeOff, NotReportingSince: &since})
		// instance-writer may not have written yet that the node is off.
		if meta.IsStatusConditionTrue(status.Conditions, akriv0.ConditionNodesReporting) {
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{
				Type: akriv0.ConditionNodesReporting, Status: metav1.ConditionFalse, Reason: akriv0.ReasonNodeNotReporting,
				Message: nodeOff + ": no report", LastTransitionTime: since,
			})
		}
	}
}
