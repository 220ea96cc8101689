package server //nolint:testpackage // parseProblems is not exported

import (
	"encoding/json"
	"fmt"
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
