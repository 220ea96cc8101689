package server //nolint:testpackage // parseProblems is not exported

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/api/equality"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Text from a node reaches terminals through conditions and the status.
func TestTextOfNodesIsEscaped(t *testing.T) {
	const hostile, escaped = "\x1b]0;x\a\u202e", `\u001b]0;x\u0007\u202e`
	request := &instancev1.ReportDevicesRequest{
		Node: "a", Configuration: "cam", Devices: []*discoveryv1.Device{{Id: hostile}},
		Handlers: []*instancev1.HandlerState{{Name: hostile, Endpoint: hostile}},
		Problems: []*instancev1.Problem{{
			Message: hostile, Evidence: []string{hostile}, Subject: &instancev1.Subject{Kind: hostile, Namespace: hostile, Name: hostile},
			Wait: &instancev1.Wait{Awaited: hostile, Then: hostile},
		}},
	}
	report, invalid := parseReport(request)
	require.Empty(t, report.Devices)
	require.Len(t, invalid, 1)

	problem := report.Problems[0]
	text := fmt.Sprint(report.Handlers, problem, *problem.Subject, *problem.Wait)
	require.True(t, akriv0.IsText(text), "%q", text)
	require.Equal(t, 9, strings.Count(text, escaped))
	require.Contains(t, report.Problems[1].Message, `"\x1b]0;x\a\u202e": must be UTF-8 without control characters`)
}

// What a node reports besides its devices must not fill the memory, or displace other nodes in the
// status.
func TestReportsAreBounded(t *testing.T) {
	long := strings.Repeat("\x1b", 1<<16)
	problem := &instancev1.Problem{
		Message: long, Evidence: slices.Repeat([]string{long}, 100), Subject: &instancev1.Subject{Kind: long, Namespace: long, Name: long},
		Wait: &instancev1.Wait{Awaited: long, Then: long},
	}
	report, invalid := parseReport(&instancev1.ReportDevicesRequest{
		Devices:  slices.Repeat([]*discoveryv1.Device{{Id: long}}, 1000),
		Handlers: slices.Repeat([]*instancev1.HandlerState{{Name: long, Endpoint: long}}, 50_000),
		Problems: slices.Repeat([]*instancev1.Problem{problem}, 1000),
	})
	require.Len(t, invalid, 1000, "each device has an answer")
	require.Len(t, report.Handlers, 16)
	require.Len(t, report.Problems, 64)
	require.Len(t, report.Problems[0].Evidence, 16)
	encoded, err := json.Marshal(report)
	require.NoError(t, err)
	require.Less(t, len(encoded), 64*32*16<<10)
}

// A status that differs from the one that the API server stores is written again and again.
func TestStoredProblemsAreEqual(t *testing.T) {
	problems := parseProblems([]*instancev1.Problem{{
		Reason: akriv0.ReasonHandlerOffline, Message: "offline", Evidence: []string{"a"},
		Subject: &instancev1.Subject{Kind: akriv0.SubjectHandler, Name: "foo"},
		Wait: &instancev1.Wait{
			Awaited: "the Discovery Handler can be reached", Then: "its devices are removed",
			Since: &timestamppb.Timestamp{Seconds: 1e9, Nanos: 1}, Until: &timestamppb.Timestamp{Seconds: 1e9 + 300, Nanos: 1},
		},
	}})
	encoded, err := json.Marshal(problems)
	require.NoError(t, err)
	var stored []akriv0.Problem
	require.NoError(t, json.Unmarshal(encoded, &stored))
	require.True(t, equality.Semantic.DeepEqual(problems, stored), "%v differs from %v", problems, stored)
}

// The API server stores times of the years 1 to 9999, and the first second of them as null.
func TestTimesOfReports(t *testing.T) {
	const first, last = -62135596800, 253402300799
	for reported, stored := range map[*timestamppb.Timestamp]bool{
		nil: true, {}: true, {Seconds: first + 1}: true, {Seconds: last}: true, {Seconds: last, Nanos: 999_999_999}: true,
		{Seconds: first}: false, {Seconds: first, Nanos: 1}: false, {Seconds: first - 1}: false, {Seconds: last + 1}: false,
		{Seconds: math.MaxInt64}: false, {Seconds: math.MinInt64}: false, {Nanos: -1}: false, {Nanos: math.MaxInt32}: false,
	} {
		for name, report := range map[string]*instancev1.ReportDevicesRequest{
			"offline_since": {Handlers: []*instancev1.HandlerState{{Status: "Offline", OfflineSince: reported}}},
			"since":         {Problems: []*instancev1.Problem{{Reason: "Any", Wait: &instancev1.Wait{Since: reported}}}},
			"until":         {Problems: []*instancev1.Problem{{Reason: "Any", Wait: &instancev1.Wait{Until: reported}}}},
		} {
			report.Node, report.Namespace, report.Configuration, report.ConfigurationUid = "a", "default", "cam", "1"
			err := validateReport(report, "a")
			require.Equal(t, stored, err == nil, "%s %v: %v", name, reported, err)
		}
	}
}
