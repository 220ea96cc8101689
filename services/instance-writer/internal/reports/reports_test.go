package reports_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
		store, streams := reports.New(math.MaxInt), map[string]*reports.Stream{}
		last := map[string]map[types.NamespacedName]*reports.Report{}
		devices := map[*reports.Report]map[string][]merge.Device{}
		sequence := uint64(0)
		report := func(t *rapid.T, node string, configuration types.NamespacedName) *reports.Report {
			sequence++
			report := &reports.Report{
				UID: types.UID(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid")), Sequence: sequence,
				Complete: rapid.Bool().Draw(t, "complete"),
			}
			devices[report] = map[string][]merge.Device{}
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "names") {
				for i := range rapid.IntRange(1, 2).Draw(t, "with one digest") {
					device := merge.Device{Node: node, ShortName: name, ID: fmt.Sprint(configuration, name, i), Complete: report.Complete}
					devices[report][name] = append(devices[report][name], device)
				}
			}
			report.Devices = reports.NewDevices(slices.Concat(slices.Collect(maps.Values(devices[report]))...))
			return report
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				node := rapid.SampledFrom(nodes).Draw(t, "node")
				streams[node], last[node] = store.Open(node, nil), map[types.NamespacedName]*reports.Report{}
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
								seen = append(seen, devices[report][name]...)
								require.Equal(t, report.Complete && len(devices[report][name]) == 0, store.Absent(configuration, "1", name, node))
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
	store := reports.New(math.MaxInt)
	device := merge.Device{Node: "a", ShortName: "cam-1", ID: "id"}
	stream := store.Open("a", nil)
	_, ok := store.Put(stream, configuration, &reports.Report{UID: "1", Devices: reports.NewDevices([]merge.Device{device})})
	require.True(t, ok)
	refusals := []merge.Refusal{{Device: device, Reason: "InvalidDevice", Message: "too long"}}
	require.False(t, store.SetRefusals(configuration, "cam-1", nil))
	require.True(t, store.SetRefusals(configuration, "cam-1", refusals))
	require.False(t, store.SetRefusals(configuration, "cam-1", refusals))
	require.Equal(t, refusals, store.Refusals("a", configuration))

	// The node reconnects and reports the device again.
	store.Close(stream)
	require.Empty(t, store.Refusals("a", configuration))
	stream = store.Open("a", nil)
	_, ok = store.Put(stream, configuration, &reports.Report{UID: "1", Devices: reports.NewDevices([]merge.Device{device})})
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

// A node with too many devices keeps the Instances of those that are not accepted.
func TestDevicesOfANodeAreLimited(t *testing.T) {
	const limit = 10_000
	configuration, other := types.NamespacedName{Namespace: "ns", Name: "cam"}, types.NamespacedName{Namespace: "ns", Name: "other"}
	store := reports.New(math.MaxInt)
	stream := store.Open("a", nil)
	put := func(configuration types.NamespacedName, prefix string, count int) *reports.Report {
		var devices []merge.Device
		for i := range count {
			name := fmt.Sprintf("%s-%05d", prefix, i)
			devices = append(devices, merge.Device{Node: "a", ShortName: name, ID: name})
		}
		report := &reports.Report{UID: "1", Complete: true, Devices: reports.NewDevices(devices)}
		_, ok := store.Put(stream, configuration, report)
		require.True(t, ok)
		return report
	}
	require.Empty(t, put(configuration, "cam", limit).Problems)
	require.Empty(t, put(configuration, "cam", limit-1).Problems)

	report := put(other, "other", 3)
	require.Len(t, report.Devices, 1)
	require.Len(t, report.Excess, 2)
	require.Equal(t, "TooManyDevices", report.Problems[0].Reason)
	require.Equal(t, "2 devices are not accepted: a node can have 10000 devices of all Configurations, with 8 MiB of ids and properties", report.Problems[0].Message)
	require.True(t, report.Answered)
	require.NotEmpty(t, store.Devices(other, "1", "other-00000"))
	require.Empty(t, store.Devices(other, "1", "other-00001"))
	require.False(t, store.Absent(other, "1", "other-00001", "a"))

	put(configuration, "cam", 10)
	require.Empty(t, put(other, "other", 3).Problems)
}

// The limit of bytes applies to all Configurations, and what is accepted does not depend on earlier
// reports.
func TestBytesOfANodeAreLimited(t *testing.T) {
	store := reports.New(math.MaxInt)
	stream := store.Open("a", nil)
	put := func(name string, devices int) *reports.Report {
		var list []merge.Device
		for i := range devices {
			id := fmt.Sprintf("%s-%05d", name, i)
			properties := merge.NewProperties(map[string]string{"LONG": strings.Repeat("x", 1<<20)})
			list = append(list, merge.Device{ShortName: id, ID: id, Properties: properties})
		}
		report := &reports.Report{UID: "1", Complete: true, Devices: reports.NewDevices(list)}
		_, ok := store.Put(stream, types.NamespacedName{Namespace: "ns", Name: name}, report)
		require.True(t, ok)
		return report
	}
	for range 3 {
		require.Len(t, put("cam", 5).Devices, 5)
		other := put("other", 5)
		require.Len(t, other.Devices, 2)
		require.Len(t, other.Excess, 3)
		require.False(t, other.Complete)
		require.Equal(t, "TooManyDevices", other.Problems[0].Reason)
	}
	require.Len(t, put("third", 1).Devices, 0)

	require.Empty(t, put("cam", 0).Problems)
	require.Len(t, put("third", 1).Devices, 1)
}
