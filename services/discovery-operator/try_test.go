package operator_test

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/trial"
	handlerv1 "akri.sh/proto/akri/handler/v1"
	operator "akri.sh/services/discovery-operator"
)

// trials has what the command `try` needs.
type trials struct {
	config    operator.Config
	registrar *fakeRegistrar
}

func newTrials(t *testing.T) *trials {
	t.Helper()
	registrar := &fakeRegistrar{}
	return &trials{registrar: registrar, config: operator.Config{
		Registrar: rpctest.Serve(t, registrar.register), NodeName: node, MaxDevices: 2,
	}}
}

// add serves and registers a handler with the name foo.
func (tr *trials) add(t *testing.T, shared bool, answers map[string]answer) *fakeHandler {
	t.Helper()
	handler := newHandler(t)
	for details, a := range answers {
		handler.respond(details, a)
	}
	handler.serve(t)
	tr.registrar.add("foo", handler.endpoint, shared)
	return handler
}

// try returns the result of a trial whose user stays connected.
func (tr *trials) try(t *testing.T, request trial.Request) trial.Result {
	t.Helper()
	in, user := io.Pipe()
	defer user.Close()
	go func() { _ = json.NewEncoder(user).Encode(request) }()
	var out bytes.Buffer
	require.NoError(t, operator.Try(t.Context(), tr.config, in, &out))
	var result trial.Result
	require.NoError(t, json.Unmarshal(out.Bytes(), &result), "%s", out.String())
	require.Equal(t, node, result.Node)
	return result
}

// The problems are those that a Configuration would have.
func TestTry(t *testing.T) {
	tr := newTrials(t)
	tr.add(t, true, map[string]answer{
		"some": {ids: []string{"b", "a"}}, "many": {ids: []string{"1", "2", "3"}}, "silent": {silent: true},
		"wrong": {err: status.Error(codes.InvalidArgument, "discoveryDetails: wrong")}, "failing": {err: status.Error(codes.Internal, "no luck")},
	})
	tr.registrar.add("gone", filepath.Join(t.TempDir(), "gone.sock"), false)
	found := func(ids ...string) []trial.Device {
		var devices []trial.Device
		for _, id := range ids {
			devices = append(devices, trial.Device{ID: id, Shared: true, Properties: map[string]string{"ID": id}})
		}
		return devices
	}
	for _, test := range []struct {
		handler, details string
		answered         bool
		devices          []trial.Device
		reason, message  string
	}{
		{"foo", "some", true, found("a", "b"), "", ""},
		{"foo", "none", true, nil, "", ""},
		{"foo", "many", true, found("1", "2"), akriv0.ReasonInvalidDevice, "--max-devices is 2"},
		{"foo", "wrong", false, nil, akriv0.ReasonInvalidDetails, "discoveryDetails: wrong"},
		{"foo", "failing", false, nil, akriv0.ReasonDiscoverFailed, "no luck"},
		{"foo", "silent", false, nil, trial.NoList, "has sent no list"},
		{"gone", "some", false, nil, akriv0.ReasonHandlerOffline, "cannot be reached"},
		{"other", "some", false, nil, akriv0.ReasonHandlerNotRegistered, `named "other" is registered on node "node-a"; registered: foo, gone`},
	} {
		t.Run(test.handler+" "+test.details, func(t *testing.T) {
			result := tr.try(t, trial.Request{Handler: test.handler, Details: test.details, Timeout: 500 * time.Millisecond})
			require.Equal(t, test.answered, result.Answered)
			require.Equal(t, test.devices, result.Devices)
			if test.reason == "" {
				require.Empty(t, result.Problems)
				return
			}
			require.Len(t, result.Problems, 1)
			require.Equal(t, test.reason, result.Problems[0].Reason)
			require.Contains(t, result.Problems[0].Message, test.message)
		})
	}
}

// A second endpoint of the name is called, too. One that fails does not hide the devices of the
// other.
func TestTrySeveralEndpoints(t *testing.T) {
	tr := newTrials(t)
	tr.add(t, true, map[string]answer{"d": {ids: []string{"a"}}})
	tr.add(t, false, map[string]answer{"d": {ids: []string{"b"}}})
	tr.registrar.add("foo", filepath.Join(t.TempDir(), "gone.sock"), true)
	result := tr.try(t, trial.Request{Handler: "foo", Details: "d", Timeout: soon})
	require.True(t, result.Answered)
	require.Len(t, result.Devices, 2)
	require.True(t, result.Devices[0].Shared)
	require.False(t, result.Devices[1].Shared)
	require.Len(t, result.Problems, 1)
	require.Equal(t, akriv0.ReasonHandlerOffline, result.Problems[0].Reason)
}

// A handler that explains is called if no device matches. Its explanation is limited.
func TestTryClosest(t *testing.T) {
	tr := newTrials(t)
	tr.add(t, true, nil) // does not explain
	handler := newHandler(t)
	handler.respond("d", answer{ids: []string{"a"}})
	long, clipped := strings.Repeat("ä", 300), strings.Repeat("ä", 256)
	handler.closest = []*handlerv1.NearMiss{
		{
			Device: "/dev/x0", Kind: "block\x1b[2J", Count: 7, Met: slices.Repeat([]string{"A"}, 30), Distance: 1, CorrectedDetails: "a:\n- b\n",
			Series:     slices.Repeat([]*handlerv1.Series{{First: "/dev/x0", Last: "/dev/x1", Count: 2}}, 4),
			Mismatches: []*handlerv1.Mismatch{{Condition: "B", Wanted: "b", Found: []string{long, "\u202e", "d", "e"}}, {Condition: "C"}},
		},
		{Device: "/dev/y", Missed: "C", Value: &long}, // without details
		{Device: "/dev/z", Missed: "B", CorrectedDetails: "a: \x1b[2J"},
	}
	handler.closest = append(handler.closest, slices.Repeat([]*handlerv1.NearMiss{{Device: "/dev/z", Missed: "B"}}, 5)...)
	handler.serve(t)
	tr.registrar.add("foo", handler.endpoint, true)
	single := func(device string) []trial.Devices {
		return []trial.Devices{{First: device, Series: []trial.Series{{First: device, Count: 1}}, Count: 1}}
	}
	for _, request := range []trial.Request{
		{Handler: "foo", Details: "none", Timeout: soon}, {Handler: "foo", Details: "d", Timeout: soon, OnlyClosest: true},
	} {
		result := tr.try(t, request)
		require.Empty(t, result.Devices)
		require.Len(t, result.Groups, 5)
		require.Equal(t, trial.Group{
			Kind: "block?[2J", Met: slices.Repeat([]string{"A"}, 20), Distance: 1, CorrectedDetails: "a:\n- b\n",
			Mismatches: []trial.Mismatch{{Condition: "B", Wanted: "b", Found: []string{clipped, "?", "d"}}, {Condition: "C"}},
			Devices: []trial.Devices{{
				First: "/dev/x0", Count: 7, Series: slices.Repeat([]trial.Series{{First: "/dev/x0", Last: "/dev/x1", Count: 2}}, 3),
			}},
		}, result.Groups[0])
		require.Equal(t, trial.Group{Mismatches: []trial.Mismatch{{Condition: "C", Found: []string{clipped}}}, Devices: single("/dev/y")}, result.Groups[1])
		require.Equal(t, trial.Group{Mismatches: []trial.Mismatch{{Condition: "B"}}, Devices: single("/dev/z")}, result.Groups[2])
	}
	require.Empty(t, tr.try(t, trial.Request{Handler: "foo", Details: "d", Timeout: soon}).Groups)
	require.Len(t, handler.received(), 2) // OnlyClosest needs no list
}

// The stream to the handler ends when its user disconnects, and after a result.
func TestTryEndsWithItsUser(t *testing.T) {
	tr := newTrials(t)
	handler := tr.add(t, true, map[string]answer{"silent": {silent: true}, "d": {ids: []string{"a"}}})
	in, user := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- operator.Try(t.Context(), tr.config, in, io.Discard) }()
	require.NoError(t, json.NewEncoder(user).Encode(trial.Request{Handler: "foo", Details: "silent", Timeout: forever}))
	require.Eventually(t, func() bool { return handler.openStreams() == 1 }, soon, tick)
	require.NoError(t, user.Close())
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "context canceled")
	case <-time.After(soon):
		require.FailNow(t, "the trial does not end")
	}
	require.Eventually(t, func() bool { return handler.openStreams() == 0 }, soon, tick)
	tr.try(t, trial.Request{Handler: "foo", Details: "d", Timeout: soon})
	require.Eventually(t, func() bool { return handler.openStreams() == 0 }, soon, tick)
}

func TestTryWithoutRegistrar(t *testing.T) {
	config := operator.Config{Registrar: "unix://" + filepath.Join(t.TempDir(), "r.sock"), NodeName: node}
	err := operator.Try(t.Context(), config, bytes.NewBufferString("{}"), io.Discard)
	require.ErrorContains(t, err, "list the handlers of the registrar")
	require.ErrorContains(t, operator.Try(t.Context(), config, bytes.NewBufferString(""), io.Discard), "read request")
}
