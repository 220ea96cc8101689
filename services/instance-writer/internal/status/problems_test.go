package status_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestNodesWithTheSameProblem(t *testing.T) {
	nodes := func(count int, problems ...string) []akriv0.NodeStatus {
		var all []akriv0.NodeStatus
		for i := range count {
			name := fmt.Sprintf("n%d", i)
			all = append(all, akriv0.NodeStatus{Name: name})
			for _, format := range problems {
				message := strings.ReplaceAll(format, "NODE", fmt.Sprintf("%q", name))
				all[i].Problems = append(all[i].Problems, akriv0.Problem{Reason: "HandlerNotRegistered", Message: message})
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		nodes []akriv0.NodeStatus
		want  string
	}{
		"one node":            {nodes(1, "no udev"), "n0: no udev"},
		"two nodes":           {nodes(2, "no udev"), "n0, n1: no udev"},
		"many nodes":          {nodes(8, "no udev"), "n0, n1, n2, n3, n4 and 3 more: no udev"},
		"two problems":        {nodes(2, "no udev", "no onvif"), "n0, n1: no udev; n0, n1: no onvif"},
		"one problem twice":   {nodes(2, "no udev", "no udev"), "n0, n1: no udev"},
		"name in the message": {nodes(2, "no udev is registered on node NODE; registered: opcua"), "n0, n1: no udev is registered; registered: opcua"},
		"different":           {append(nodes(2, "no udev"), node("z", nil, "HandlerOffline")), "n0, n1: no udev; z: about HandlerOffline"},
	} {
		t.Run(name, func(t *testing.T) {
			got := desired(c.nodes...)
			require.Equal(t, c.want, meta.FindStatusCondition(got.Conditions, akriv0.ConditionHandlerRegistered).Message)
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	var nodes []akriv0.NodeStatus
	for i := range 30 {
		message := fmt.Sprint(i) + strings.Repeat("ä", 2000)
		nodes = append(nodes, akriv0.NodeStatus{Name: fmt.Sprintf("node-%03d", i), Problems: []akriv0.Problem{{Reason: "InvalidDetails", Message: message}}})
	}
	got := desired(nodes...)
	message := meta.FindStatusCondition(got.Conditions, akriv0.ConditionDetailsAccepted).Message
	require.LessOrEqual(t, len(message), 1100)
	require.Contains(t, message, "… and 29 more problems")
	require.LessOrEqual(t, len(got.Nodes[0].Problems[0].Message), 1024)
}

// A node can choose all texts of a problem.
func TestFactsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	var nodes []akriv0.NodeStatus
	for i := range 32 {
		nodes = append(nodes, akriv0.NodeStatus{Name: fmt.Sprintf("node-%03d", i), Problems: []akriv0.Problem{{
			Reason: "InvalidDetails", Message: fmt.Sprint(i), Evidence: []string{"one", long, long},
			Subject: &akriv0.Subject{Kind: long, Namespace: long, Name: long},
			Wait:    &akriv0.Wait{Awaited: long, Then: long},
		}}})
	}

	got := desired(nodes...)
	encoded, err := json.Marshal(got)
	require.NoError(t, err)
	require.LessOrEqual(t, len(encoded), 16<<10)

	one := desired(nodes[0])
	require.Equal(t, []string{"one", long}, one.Nodes[0].Problems[0].Evidence)
}
