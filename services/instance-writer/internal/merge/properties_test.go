package merge_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/merge"
)

// Nodes report one of a few values of a shared device, through two replicas that restart and hold
// some of the reports. The properties of the Instance do not change while a listed node goes on
// reporting them, and are a reported value when all nodes report to a replica.
func TestEstablishedPropertiesStay(t *testing.T) {
	nodes, values := []string{"a", "b", "c", "d"}, []string{"1", "2", "3"}
	rapid.Check(t, func(t *rapid.T) {
		var current *akriv0.Instance
		last := map[string]string{} // by node that sees the device
		replicas := []map[string]string{{}, {}}
		run := func(replica int) {
			before := current.DeepCopy()
			in := merge.Input{Name: name, Configuration: configuration(1), Current: current}
			for node, value := range replicas[replica] {
				if value != "" {
					in.Seen = append(in.Seen, valued(node, value))
				}
			}
			in.Absent = func(node string) bool { value, reports := replicas[replica][node]; return reports && value == "" }
			current = merge.Desired(in).Instance
			if before == nil || current == nil {
				return
			}
			established := before.Spec.BrokerProperties["VALUE"]
			for _, node := range current.Spec.Nodes {
				if slices.Contains(before.Spec.Nodes, node) && last[node] == established {
					require.Equal(t, established, current.Spec.BrokerProperties["VALUE"], "%s reports it", node)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"report": func(t *rapid.T) {
				node, replica := rapid.SampledFrom(nodes).Draw(t, "node"), rapid.IntRange(0, 1).Draw(t, "replica")
				last[node] = rapid.SampledFrom(append(values, "")).Draw(t, "value")
				delete(replicas[1-replica], node)
				replicas[replica][node] = last[node]
				run(replica)
			},
			"restart":   func(t *rapid.T) { replicas[rapid.IntRange(0, 1).Draw(t, "replica")] = map[string]string{} },
			"reconcile": func(t *rapid.T) { run(rapid.IntRange(0, 1).Draw(t, "replica")) },
			"": func(t *rapid.T) {
				for _, node := range merge.DifferingNodes(orEmpty(current)) {
					require.Contains(t, current.Spec.Nodes, node)
				}
			},
		})

		// All nodes report the same value in the end.
		for i, node := range nodes {
			delete(replicas[1-i%2], node)
			replicas[i%2][node], last[node] = "4", "4"
		}
		for range 2 {
			run(0)
			run(1)
		}
		require.Equal(t, "4", current.Spec.BrokerProperties["VALUE"])
		require.Empty(t, merge.DifferingNodes(current))
	})
}

// The first node by name does not replace the properties that another node reports.
func TestNodeDoesNotReplaceProperties(t *testing.T) {
	in := merge.Input{Name: name, Configuration: configuration(1), Seen: []merge.Device{valued("b", "1")}}
	in.Current = merge.Desired(in).Instance
	in.Seen = append(in.Seen, valued("a", "EVIL-SERIAL"))
	got := merge.Desired(in).Instance
	require.Equal(t, "1", got.Spec.BrokerProperties["VALUE"])
	require.Equal(t, []string{"a"}, merge.DifferingNodes(got))
}

func valued(node, value string) merge.Device {
	device := seen(node, "id", true)
	device.Properties = merge.NewProperties(map[string]string{"VALUE": value})
	return device
}

func orEmpty(instance *akriv0.Instance) *akriv0.Instance {
	if instance == nil {
		return &akriv0.Instance{}
	}
	return instance
}
