package status_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/status"
)

func kubernetesNode(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
}

// reportingInput is the input of a replica without streams. The nodes a and b have reported before,
// and each sees a device. The node c has not reported.
func reportingInput(lost ...string) status.Input {
	in := status.Input{
		Configuration: &akriv0.Configuration{}, Instances: 2, Gone: never, Now: early,
		Nodes:        []*corev1.Node{kubernetesNode("a"), kubernetesNode("b"), kubernetesNode("c")},
		NotReporting: map[string]time.Time{},
		DevicesOn:    func(node string) int { return strings.Count("a b", node) },
		Unlisted:     status.Unlisted{Reporting: never, Settled: true},
	}
	in.Configuration.Status.Nodes = []akriv0.NodeStatus{node("a", active), node("b", active, "InvalidDevice")}
	for _, name := range lost {
		in.NotReporting[name] = early
	}
	return in
}

// off returns a Node that is cordoned and not ready.
func off(name string) *corev1.Node {
	node := kubernetesNode(name)
	node.Spec.Unschedulable = true
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	return node
}

func TestNodesReporting(t *testing.T) {
	gpu := corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	const since, check = "no report since 2026-01-01T00:00:00Z; ", "check that discovery-operator is running there"
	for name, c := range map[string]struct {
		lost   []string
		change func(*status.Input)
		status metav1.ConditionStatus
		want   string
	}{
		"all report": {
			nil, func(in *status.Input) { in.Nodes = in.Nodes[:2] },
			metav1.ConditionTrue, "reports from 2 nodes",
		},
		"a node never reported": {
			[]string{"c"}, func(*status.Input) {},
			metav1.ConditionTrue, "reports from 2 nodes, none yet from c",
		},
		"a tainted node never reported": {
			[]string{"c"}, func(in *status.Input) { in.Nodes[2] = kubernetesNode("c", gpu) },
			metav1.ConditionTrue, "reports from 2 nodes, none yet from c with the taint dedicated=gpu:NoSchedule",
		},
		"an Instance lists a node that never reported": {
			[]string{"c"}, func(in *status.Input) { in.DevicesOn = func(string) int { return 1 } },
			metav1.ConditionFalse, "c: " + since + check,
		},
		"one of two no longer reports": {
			[]string{"b"}, func(in *status.Input) { in.Nodes = in.Nodes[:2] },
			metav1.ConditionFalse, "b: " + since + check,
		},
		"tainted": {
			[]string{"b"}, func(in *status.Input) { in.Nodes = []*corev1.Node{kubernetesNode("a"), kubernetesNode("b", gpu)} },
			metav1.ConditionFalse, "b: " + since + check + " and tolerates the taint dedicated=gpu:NoSchedule",
		},
		"not ready": {
			[]string{"b"}, func(in *status.Input) {
				in.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			},
			metav1.ConditionFalse, "b: " + since + "the Node is not ready; no report yet from c",
		},
		"cordoned and not ready": {
			[]string{"b"}, func(in *status.Input) { in.Nodes = []*corev1.Node{kubernetesNode("a"), off("b")} },
			metav1.ConditionTrue, "reports from 1 node; cordoned and not ready: b",
		},
		"all cordoned and not ready": {
			[]string{"a", "b"}, func(in *status.Input) { in.Nodes = []*corev1.Node{off("a"), off("b")} },
			metav1.ConditionTrue, "reports from 0 nodes; cordoned and not ready: a, b",
		},
		"one is cordoned and not ready, one is lost": {
			[]string{"a", "b"}, func(in *status.Input) { in.Nodes = []*corev1.Node{kubernetesNode("a"), off("b")} },
			metav1.ConditionFalse, "a: " + since + check + "; cordoned and not ready: b",
		},
		"cordoned and ready": {
			[]string{"b"}, func(in *status.Input) { in.Nodes = in.Nodes[:2]; in.Nodes[1].Spec.Unschedulable = true },
			metav1.ConditionFalse, "b: " + since + check,
		},
		"none reports": {
			[]string{"a", "b"}, func(in *status.Input) { in.Nodes = in.Nodes[:2] },
			metav1.ConditionFalse, "a, b: " + since + check,
		},
		"none has reported": {
			[]string{"a", "b", "c"}, func(in *status.Input) {
				in.Configuration.Status.Nodes, in.DevicesOn, in.Nodes[2] = nil, func(string) int { return 0 }, kubernetesNode("c", gpu)
			},
			metav1.ConditionUnknown, "no node has reported yet: a, b; c with the taint dedicated=gpu:NoSchedule",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := reportingInput(c.lost...)
			c.change(&in)
			got := status.Desired(in)
			condition := meta.FindStatusCondition(got.Conditions, akriv0.ConditionNodesReporting)
			require.Equal(t, c.status, condition.Status)
			require.Equal(t, c.want, condition.Message)
			require.Equal(t, c.status == metav1.ConditionFalse, condition.Reason == akriv0.ReasonNodeNotReporting)
		})
	}
}

// The handlers and problems of a node that does not report are not known. Its Instances stay.
func TestEntryOfNodeWithoutReports(t *testing.T) {
	in := reportingInput("b")
	in.Configuration.Status = status.Desired(in)
	lost := akriv0.NodeStatus{Name: "b", Devices: 1, NotReportingSince: &metav1.Time{Time: early}}
	require.Equal(t, []akriv0.NodeStatus{node("a", active), lost}, in.Configuration.Status.Nodes)

	other := in
	other.NotReporting = map[string]time.Time{"b": early.Add(7 * time.Second)}
	require.Equal(t, in.Configuration.Status, status.Desired(other), "a replica that observed it later agrees")
	other.NotReporting = nil
	require.Equal(t, in.Configuration.Status, status.Desired(other), "a replica that has started agrees")

	in.DevicesOn = func(string) int { return 0 }
	require.Zero(t, status.Desired(in).Nodes[1].Devices, "the Node was not ready for the grace period")
	for name, report := range map[string]status.NodeReport{
		"complete":   {NodeStatus: node("b", active), Complete: true},
		"incomplete": {NodeStatus: node("b", active)},
		"no handler": {NodeStatus: node("b", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			other.Reports = []status.NodeReport{report}
			got := status.Desired(other)
			require.Nil(t, got.Nodes[1].NotReportingSince)
			require.Equal(t, report.Handlers, got.Nodes[1].Handlers)
			require.True(t, meta.IsStatusConditionTrue(got.Conditions, akriv0.ConditionNodesReporting))
		})
	}
}

func TestNodesReportingIsBounded(t *testing.T) {
	in := reportingInput()
	in.Nodes = nil
	for i := range 1000 {
		name := fmt.Sprintf("lost-%03d-%s", i, strings.Repeat("x", 200))
		in.Configuration.Status.Nodes = append(in.Configuration.Status.Nodes, node(name, active))
		in.NotReporting[name] = early.Add(time.Duration(i) * time.Minute)
		in.Nodes = append(in.Nodes, kubernetesNode("never-"+name, corev1.Taint{Key: name, Effect: corev1.TaintEffectNoSchedule}))
	}
	slices.Reverse(in.Nodes)
	got := status.Desired(in)
	require.LessOrEqual(t, len(meta.FindStatusCondition(got.Conditions, akriv0.ConditionNodesReporting).Message), 2048)
	require.Equal(t, got, status.Desired(in))
}
