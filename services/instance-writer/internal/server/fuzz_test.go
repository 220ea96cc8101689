package server //nolint:testpackage // parseReport is not exported

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/cluster"
)

// FuzzReport reads any message as a report. Each device is accepted or refused, what is accepted is
// within the limits of a report, and no text that other users read has control characters.
func FuzzReport(f *testing.F) {
	device := func(id string, properties map[string]string) *discoveryv1.Device {
		return &discoveryv1.Device{
			Id: id, Shared: true, Properties: properties, Instance: akriv0.InstanceName("cam", akriv0.Digest(id, "a", true)),
		}
	}
	const hostile = "\x1b]0;x\a\u202e\n"
	for _, seed := range []*instancev1.ReportDevicesRequest{
		{},
		{Node: "a", Namespace: "ns", Configuration: "cam", ConfigurationUid: "1", Devices: []*discoveryv1.Device{
			device("good", map[string]string{"A": "1"}), device(hostile, nil), device("name", map[string]string{hostile: ""}),
			device("value", map[string]string{"A": hostile + "\x00"}), {Id: "other", Instance: hostile},
		}},
		{
			Node: "a", Namespace: "ns", Configuration: hostile, ConfigurationUid: "1",
			Handlers: []*instancev1.HandlerState{{Name: hostile, Endpoint: hostile, Status: "Active"}, {Status: "Offline"}},
			Problems: []*instancev1.Problem{
				{Reason: "Any", Message: hostile, Evidence: []string{hostile}, Subject: &instancev1.Subject{Kind: hostile}, Wait: &instancev1.Wait{Then: hostile}},
			},
		},
	} {
		text, err := proto.Marshal(seed)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		request := &instancev1.ReportDevicesRequest{}
		if proto.Unmarshal(text, request) != nil || validateReport(request, "a") != nil {
			return
		}
		require.Equal(t, "a", request.GetNode())
		report, invalid := parseReport(request)
		require.Len(t, request.GetDevices(), len(report.Devices)+len(invalid))
		require.LessOrEqual(t, len(report.Handlers), maxHandlerStates)
		require.LessOrEqual(t, len(report.Problems), maxProblems)

		for _, handle := range report.Devices {
			device := handle.Value()
			require.NoError(t, akriv0.ValidateDeviceID(device.ID))
			require.LessOrEqual(t, device.Size(), cluster.MaxDeviceBytes)
			for name, value := range device.Properties.Map() {
				require.NoError(t, akriv0.ValidateVariable(name, value))
				require.True(t, akriv0.IsText(name))
				require.True(t, akriv0.IsText(value))
			}
		}
		for _, shown := range []any{report.Handlers, report.Problems} {
			requireText(t, shown)
		}
	})
}

// requireText requires that no text in the value has control characters or is longer than allowed.
func requireText(t *testing.T, value any) {
	t.Helper()
	encoded, err := json.Marshal(value)
	require.NoError(t, err)
	var decoded any
	require.NoError(t, json.Unmarshal(encoded, &decoded))

	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case string:
			require.True(t, akriv0.IsText(value), "%q", value)
			require.LessOrEqual(t, len(value), maxText+len(" …"))
		case []any:
			for _, item := range value {
				walk(item)
			}
		case map[string]any:
			for _, item := range value {
				walk(item)
			}
		}
	}
	walk(decoded)
}
