package server //nolint:testpackage // parseReport is not exported

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Who controls a node sends names of properties that discovery-operator would refuse. Names are
// shown with the device, so they are those of environment variables. Values are text of the device,
// which can have several lines. Their control characters are escaped, so that no program that reads
// an Instance or a ResourceSlice writes them to a terminal.
func TestPropertiesWithControlCharacters(t *testing.T) {
	device := func(id, name, value string) *discoveryv1.Device {
		return &discoveryv1.Device{
			Id: id, Shared: true, Instance: akriv0.InstanceName("cam", akriv0.Digest(id, "a", true)), Properties: map[string]string{name: value},
		}
	}
	var hostile []string
	add := func(first, last rune) {
		for r := first; r <= last; r++ {
			hostile = append(hostile, string(r))
		}
	}
	add(0, 0x1f)        // C0
	add(0x7f, 0x9f)     // DEL and C1
	add(0x200b, 0x200f) // marks of direction, and characters without width
	add(0x2028, 0x202e) // separators of lines, embeddings and overrides
	add(0x2066, 0x2069) // isolates
	hostile = append(hostile, "\u061c", "\ufeff", "\xff", "\xc0\x80", "\xed\xa0\x80")

	for _, text := range hostile {
		for _, name := range []string{text, "A" + text, text + "A", "A" + text + "B"} {
			request := &instancev1.ReportDevicesRequest{Node: "a", Configuration: "cam", Devices: []*discoveryv1.Device{
				device("bad", name, "1"), device("good", "A", "1"),
			}}
			report, invalid := parseReport(request)
			require.Len(t, report.Devices, 1, "%q", name)
			require.Equal(t, "good", report.Devices[0].Value().ID)
			require.Len(t, invalid, 1)
			require.Contains(t, invalid[0].GetMessage(), `device "bad" with property`)
			require.True(t, akriv0.IsText(invalid[0].GetMessage()), "%q", invalid[0].GetMessage())
			require.Equal(t, invalid[0].GetMessage(), report.Problems[0].Message)
		}

		value := "line\n" + text
		report, invalid := parseReport(&instancev1.ReportDevicesRequest{
			Node: "a", Configuration: "cam", Devices: []*discoveryv1.Device{device("id", "A", value)},
		})
		if text == "\x00" || !utf8.ValidString(text) {
			require.Len(t, invalid, 1, "%q", text)
			continue
		}
		require.Empty(t, invalid, "%q", text)
		stored := report.Devices[0].Value().Properties.Map()["A"]
		require.True(t, akriv0.IsText(stored), "%q", stored)
		require.Equal(t, akriv0.Escape(value), stored)
	}
}

// What is shown as a part of a line has no line break and no tab.
func TestFactsAreLines(t *testing.T) {
	const hostile = "a\n\tb"
	report, _ := parseReport(&instancev1.ReportDevicesRequest{
		Handlers: []*instancev1.HandlerState{{Name: hostile, Endpoint: hostile}},
		Problems: []*instancev1.Problem{{
			Reason: "X", Evidence: []string{hostile}, Subject: &instancev1.Subject{Kind: hostile, Namespace: hostile, Name: hostile},
			Wait: &instancev1.Wait{Awaited: hostile, Then: hostile},
		}},
	})
	facts, err := json.Marshal(map[string]any{"handlers": report.Handlers, "problems": report.Problems})
	require.NoError(t, err)
	require.NotContains(t, string(facts), `\n`)
	require.NotContains(t, string(facts), `\t`)
	require.Equal(t, 8, strings.Count(string(facts), `a\\u000a\\u0009b`))
}
