package reports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/reports"
)

// A node reports texts of many Configurations. What exceeds its limit is dropped, evidence first,
// and a problem states it. Devices stay, and so does what it reported before. The memory is free
// again when it reports less.
func TestTextOfANodeIsLimited(t *testing.T) {
	const text, configurations = 64 << 10, 60
	store := reports.New(1 << 30)
	stream := store.Open("node", func(err error) { t.Error(err) })
	put := func(configuration int, bytes int) *reports.Report {
		long := strings.Repeat("x", bytes)
		report := &reports.Report{
			UID: "1", Devices: reports.NewDevices([]merge.Device{device(fmt.Sprint(configuration), 10)}),
			Handlers: []akriv0.HandlerStatus{{Name: "onvif", Endpoint: "onvif.sock"}},
			Problems: []akriv0.Problem{{Reason: "Any", Message: "m", Evidence: []string{long}}, {Reason: "Any", Message: long}},
		}
		_, ok := store.Put(stream, types.NamespacedName{Name: fmt.Sprint(configuration)}, report)
		require.True(t, ok)
		return report
	}

	whole, withoutEvidence, cut, empty := 0, 0, 0, 0
	for configuration := range configurations {
		report := put(configuration, text)
		require.Len(t, report.Devices, 1)
		require.Less(t, store.Bytes(), cluster.MaxNodeText+configurations*1<<10)
		switch problems := report.Problems; {
		case len(problems) == 0:
			empty++
			require.Empty(t, report.Handlers)
		case problems[len(problems)-1].Reason != akriv0.ReasonTooManyProblems:
			whole++
			require.Len(t, problems[0].Evidence, 1)
		case len(problems) == 3:
			withoutEvidence++
			require.Empty(t, problems[0].Evidence)
		default:
			cut++
			require.NotEmpty(t, report.Handlers)
			require.Contains(t, problems[len(problems)-1].Message, "a node can report 1 MiB")
		}
	}
	require.Equal(t, 7, whole)
	require.Equal(t, 1, withoutEvidence)
	require.Positive(t, cut)
	t.Logf("%d whole, %d without evidence, %d cut, %d without text", whole, withoutEvidence, cut, empty)

	for configuration := range configurations {
		put(configuration, 1)
	}
	require.Len(t, put(0, text).Problems[0].Evidence, 1)
	store.Close(stream)
	require.Zero(t, store.Bytes())
}
