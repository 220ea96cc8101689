package explain_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"akri.sh/libs/inspect/explain"
)

// refusals are messages of the scheduler that Akri's objects do not explain.
var refusals = []string{
	"2 Insufficient cpu.", "1 Insufficient memory, 1 Too many pods.", "2 node(s) had volume node affinity conflict.",
	"2 node(s) didn't match pod anti-affinity rules.", "2 node(s) didn't have free ports for the requested pod ports.",
	"2 a reason of a plug-in that Akri does not know.",
}

// TestSchedulerIsTranslated checks for all Pods of testdata for which the scheduler finds no node
// that the verdict states more than the message of the scheduler: a reason of another rule, or what
// was compared for each node.
func TestSchedulerIsTranslated(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	translated := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		requireTranslated(t, load(t, name), &translated)
		for _, refusal := range refusals {
			for _, knowsPods := range []bool{true, false} {
				s := load(t, name)
				refuseAll(s, "0/2 nodes are available: "+refusal)
				if !knowsPods {
					s.Requested = nil
				}
				requireTranslated(t, s, &translated)
			}
		}
	}
	require.NotZero(t, translated)
}

// refuseAll replaces the messages of the scheduler.
func refuseAll(s *explain.Snapshot, message string) {
	for i := range s.Pods {
		for j := range s.Pods[i].Status.Conditions {
			if condition := &s.Pods[i].Status.Conditions[j]; condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				condition.Message = message
			}
		}
	}
}

func requireTranslated(t *testing.T, s *explain.Snapshot, translated *int) {
	t.Helper()
	for i := range s.Pods {
		pod := &s.Pods[i]
		for _, condition := range pod.Status.Conditions {
			if condition.Type != corev1.PodScheduled || condition.Status != corev1.ConditionFalse {
				continue
			}
			verdict := explain.Pod(s, pod.Namespace, pod.Name).Verdicts[0]
			require.NotEmpty(t, verdict.Causes, pod.Name)
			own := strings.ReplaceAll(verdict.Message, strings.TrimSuffix(condition.Message, "."), "")
			require.NotEmpty(t, strings.Trim(own, "; ."), "%s: only the message of the scheduler: %s", pod.Name, verdict.Message)
			if verdict.Causes[0].ID == explain.Unschedulable {
				for i := range s.Nodes {
					require.Contains(t, own, s.Nodes[i].Name+": ", verdict.Message)
				}
			}
			*translated++
		}
	}
}

// A user who may not list the Pods of all namespaces learns what the nodes have for all Pods.
func TestInsufficientResources(t *testing.T) {
	const message = "0/2 nodes are available: 2 Insufficient cpu; node-a: 3 of cpu requested, 1500m of 4 left; node-b: 3 of cpu requested, it has 2"
	s := load(t, "insufficient-cpu")
	require.Equal(t, message, explain.Pod(s, "default", "waiting").Verdicts[0].Message)

	// A request of nothing fits on a node that has too little for its other Pods.
	explain.Find(s.Pods, "default", "waiting").Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.Quantity{}
	s.Requested["node-a"][corev1.ResourceMemory] = resource.MustParse("1Ti")
	require.Equal(t, message, explain.Pod(s, "default", "waiting").Verdicts[0].Message)

	s.Requested = nil
	require.Equal(t, "0/2 nodes are available: 2 Insufficient cpu; node-a: 3 of cpu requested, other Pods request a part of its 4; "+
		"node-b: 3 of cpu requested, it has 2", explain.Pod(s, "default", "waiting").Verdicts[0].Message)
}
