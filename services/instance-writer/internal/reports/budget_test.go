package reports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/reports"
)

// One node sends reports of any size while ten others report little, in any order. The reports of
// the ten are always accepted, and all reports together are within the limit.
func TestHeavyNodeIsRefused(t *testing.T) {
	const limit, honest = 4 << 20, 10
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		store, streams, ended := reports.New(limit), map[string]*reports.Stream{}, map[string]error{}
		put := func(node, configuration string, problems []akriv0.Problem, devices ...merge.Device) {
			if streams[node] == nil || ended[node] != nil {
				delete(ended, node)
				streams[node] = store.Open(node, func(cause error) { ended[node] = cause })
			}
			report := &reports.Report{UID: "1", Devices: reports.NewDevices(devices), Problems: problems}
			_, ok := store.Put(streams[node], types.NamespacedName{Namespace: "ns", Name: configuration}, report)
			require.Equal(t, ended[node] == nil, ok)
			require.LessOrEqual(t, store.Bytes(), limit)
			if node != "hostile" {
				require.True(t, ok, node)
			}
		}
		for range rapid.IntRange(20, 60).Draw(t, "reports") {
			if rapid.Bool().Draw(t, "hostile") {
				var devices []merge.Device
				size := rapid.IntRange(0, 2<<20).Draw(t, "bytes")
				for i := range rapid.IntRange(0, 20).Draw(t, "devices") {
					devices = append(devices, device(fmt.Sprint("hostile-", i), size/20))
				}
				problem := akriv0.Problem{Reason: "Any", Message: strings.Repeat("x", rapid.IntRange(0, 1<<20).Draw(t, "text"))}
				put("hostile", fmt.Sprint(rapid.IntRange(0, 60).Draw(t, "configuration")), []akriv0.Problem{problem}, devices...)
			} else {
				node := fmt.Sprint("node-", rapid.IntRange(0, honest-1).Draw(t, "node"))
				put(node, "cam", nil, device(node, rapid.IntRange(0, limit/20).Draw(t, "bytes")), device("shared", 1000))
			}
			if ended["hostile"] != nil {
				require.ErrorIs(t, ended["hostile"], reports.ErrHeaviest)
				refused++
			}
			for node, err := range ended {
				require.Equal(t, "hostile", node, err)
			}
		}
		for node, stream := range streams {
			if ended[node] == nil {
				store.Close(stream)
			}
		}
		require.Zero(t, store.Bytes())
	})
	require.Positive(t, refused)
}

// Memory for a new node is made by ending the stream of a node with large reports, and not of one
// with small reports.
func TestMakeRoom(t *testing.T) {
	store, ended := reports.New(1<<20), map[string]bool{}
	for node, size := range map[string]int{"large": 700 << 10, "small": 1 << 10} {
		stream := store.Open(node, func(error) { ended[node] = true })
		_, ok := store.Put(stream, types.NamespacedName{Name: "cam"}, &reports.Report{Devices: reports.NewDevices([]merge.Device{device(node, size)})})
		require.True(t, ok)
	}
	require.False(t, store.MakeRoom("large"))
	require.True(t, store.MakeRoom("new"))
	require.Equal(t, map[string]bool{"large": true}, ended)
	require.False(t, store.MakeRoom("new"))
}

func device(id string, bytes int) merge.Device {
	return merge.Device{ShortName: id, ID: id, Properties: merge.NewProperties(map[string]string{"LONG": strings.Repeat("x", bytes)})}
}
