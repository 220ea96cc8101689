package reports_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/reports"
)

// TestStore compares the Store, which has an index by name, with the last report of each node.
func TestStore(t *testing.T) {
	nodes, names := []string{"a", "b", "c"}, []string{"cam-1", "cam-2", "cam-3"}
	configurations := []types.NamespacedName{{Namespace: "ns", Name: "cam"}, {Namespace: "ns", Name: "other"}}
	rapid.Check(t, func(t *rapid.T) {
		store, streams := reports.New(), map[string]*reports.Stream{}
		last := map[string]map[types.NamespacedName]*reports.Report{}
		sequence := uint64(0)
		report := func(t *rapid.T, node string, configuration types.NamespacedName) *reports.Report {
			sequence++
			report := &reports.Report{
				UID: types.UID(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid")), Sequence: sequence,
				Complete: rapid.Bool().Draw(t, "complete"), Devices: map[string][]merge.Device{},
			}
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "names") {
				report.Devices[name] = []merge.Device{{Node: node, ID: fmt.Sprint(configuration, name)}}
			}
			return report
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				node := rapid.SampledFrom(nodes).Draw(t, "node")
				streams[node], last[node] = store.Open(node), map[types.NamespacedName]*reports.Report{}
			},
			"put": func(t *rapid.T) {
				node, configuration := rapid.SampledFrom(nodes).Draw(t, "node"), rapid.SampledFrom(configurations).Draw(t, "configuration")
				if streams[node] != nil {
					report := report(t, node, configuration)
					_, ok := store.Put(streams[node], configuration, report)
					require.True(t, ok)
					last[node][configuration] = report
				}
			},
			"close": func(t *rapid.T) {
				node := rapid.SampledFrom(nodes).Draw(t, "node")
				if streams[node] != nil {
					store.Close(streams[node])
					delete(streams, node)
					delete(last, node)
				}
			},
			"drop": func(t *rapid.T) {
				configuration := rapid.SampledFrom(configurations).Draw(t, "configuration")
				store.Drop(configuration, "1")
				for _, reports := range last {
					if report := reports[configuration]; report != nil && report.UID == "1" {
						delete(reports, configuration)
					}
				}
			},
			"": func(t *rapid.T) {
				for _, configuration := range configurations {
					for _, name := range names {
						var seen []merge.Device
						for _, node := range nodes {
							report := last[node][configuration]
							if current := report != nil && report.UID == "1"; current {
								seen = append(seen, report.Devices[name]...)
								require.Equal(t, report.Complete && len(report.Devices[name]) == 0, store.Absent(configuration, "1", name, node))
							} else {
								require.False(t, store.Absent(configuration, "1", name, node))
							}
						}
						require.ElementsMatch(t, seen, slices.Clone(store.Devices(configuration, "1", name)))
					}
				}
			},
		})
	})
}

// Refusals that do not change need no write of the status.
func TestRefusals(t *testing.T) {
	configuration := types.NamespacedName{Namespace: "ns", Name: "cam"}
	store := reports.New()
	device := merge.Device{Node: "a", ID: "id"}
	stream := store.Open("a")
	_, ok := store.Put(stream, configuration, &reports.Report{UID: "1", Devices: map[string][]merge.Device{"cam-1": {device}}})
	require.True(t, ok)
	refusals := []merge.Refusal{{Device: device, Reason: "InvalidDevice", Message: "too long"}}
	require.False(t, store.SetRefusals(configuration, "cam-1", nil))
	require.True(t, store.SetRefusals(configuration, "cam-1", refusals))
	require.False(t, store.SetRefusals(configuration, "cam-1", refusals))
	require.Equal(t, refusals, store.Refusals("a", configuration))

	// The node reconnects and reports the device again.
	store.Close(stream)
	require.Empty(t, store.Refusals("a", configuration))
	stream = store.Open("a")
	_, ok = store.Put(stream, configuration, &reports.Report{UID: "1", Devices: map[string][]merge.Device{"cam-1": {device}}})
	require.True(t, ok)
	require.Equal(t, refusals, store.Refusals("a", configuration))
	require.False(t, store.SetRefusals(configuration, "cam-1", refusals))
	_, ok = store.Put(stream, configuration, &reports.Report{UID: "1", Sequence: 1})
	require.True(t, ok)
	require.Empty(t, store.Refusals("a", configuration), "the node no longer reports the device")
	require.True(t, store.SetRefusals(configuration, "cam-1", refusals))
	require.True(t, store.SetRefusals(configuration, "cam-1", nil))
	require.Empty(t, store.Refusals("a", configuration))
	require.False(t, store.SetRefusals(configuration, "cam-1", nil))
}
