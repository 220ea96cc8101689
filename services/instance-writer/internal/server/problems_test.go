package server //nolint:testpackage // parseProblems is not exported

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/api/equality"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

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
