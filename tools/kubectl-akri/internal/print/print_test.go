package print_test

import (
	"bytes"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/inspect/status"
	"akri.sh/libs/trial"
	"akri.sh/tools/kubectl-akri/internal/forget"
	"akri.sh/tools/kubectl-akri/internal/print"
	"akri.sh/tools/kubectl-akri/internal/try"
)

var update = flag.Bool("update", false, "write the golden files")

const fixtures = "../../../../libs/inspect/explain/testdata/"

// trials have a device that two nodes see, local devices with the same id, and problems.
var trials = []trial.Result{
	{Node: "node-a", Answered: true, Devices: []trial.Device{
		{ID: "cam-1", Shared: true, Properties: map[string]string{"URL": "http://cam-1/", "MODEL": strings.Repeat("long ", 30)}},
		{ID: "/devices/video0", DeviceNodes: []string{"/dev/video0"}, Properties: map[string]string{"UDEV_DEVNODE": "/dev/video0"}},
	}},
	{Node: "node-b", Answered: true, Devices: []trial.Device{
		{ID: "/devices/video0", DeviceNodes: []string{"/dev/video0"}, Properties: map[string]string{"UDEV_DEVNODE": "/dev/video0"}},
		{ID: "cam-1", Shared: true},
	}, Problems: []trial.Problem{{Reason: "InvalidDevice", Message: "a disk that the node uses"}}},
	{Node: "node-c", Answered: true},
	{Node: "node-d", Answered: true, Groups: near},
	{Node: "node-e", Problems: []trial.Problem{{Reason: "InvalidDetails", Message: "unknown key"}}},
	{Node: "node-f", Problems: []trial.Problem{{Reason: "InvalidDetails", Message: "unknown key"}}},
}

// near are devices of two kinds that come close.
var near = []trial.Group{
	{
		Kind: "video4linux", Met: []string{`KERNEL=="video*"`}, Distance: 1,
		Mismatches:       []trial.Mismatch{{Condition: `ATTRS{idVendor}=="046e"`, Wanted: "046e", Found: []string{"046d"}}},
		CorrectedDetails: "udevRules:\n  - KERNEL==\"video*\", ATTRS{idVendor}==\"046d\"\n",
		Devices:          []trial.Devices{{First: "/dev/video0", Series: []trial.Series{{First: "/dev/video0", Last: "/dev/video1", Count: 2}}, Count: 2}},
	},
	{
		Kind: "net", Met: []string{`KERNEL=="video*"`}, Distance: 1000, Mismatches: []trial.Mismatch{{Condition: `ATTRS{idVendor}=="046e"`, Wanted: "046e"}},
		Devices: []trial.Devices{{First: "/devices/virtual/net/video9", Series: []trial.Series{{First: "/devices/virtual/net/video9", Count: 1}}, Count: 1}},
	},
}

// unmatched explains a Configuration that no device matches, with the devices that come close.
func unmatched(t *testing.T) explain.Explanation {
	t.Helper()
	e := explain.Configuration(fixture.Load(t, fixtures+"healthy.yaml", fixtures+"nothing-matched.yaml"), "default", "camera")
	require.Equal(t, explain.NothingMatched, e.Cause().ID)
	e.Cause().Closest = try.Closest(trials[2:4])
	return e
}

// TestText compares the text of each command with a golden file.
func TestText(t *testing.T) {
	skew := fixture.Load(t, fixtures+"healthy.yaml", fixtures+"tainted-node.yaml", fixtures+"version-skew.yaml", fixtures+"misspelt-handler.yaml")
	healthy := fixture.Load(t, fixtures+"healthy.yaml")
	waiting := fixture.Load(t, fixtures+"healthy.yaml", fixtures+"waiting.yaml")
	offline := fixture.Load(t, fixtures+"healthy.yaml", fixtures+"handler-offline-on-one-node.yaml")
	withoutHandler := *offline.Configurations[0].DeepCopy()
	withoutHandler.Name, withoutHandler.Spec.DiscoveryHandler.Name, withoutHandler.Status = "serial", "udve", akriv0.ConfigurationStatus{}
	offline.Configurations = append(offline.Configurations, withoutHandler)
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	var out bytes.Buffer
	for _, c := range []struct {
		name  string
		write func()
	}{
		{"broken", func() { print.Explanation(&out, explain.Configuration(skew, "default", "camera")) }},
		{"waiting", func() { print.Explanation(&out, explain.Configuration(waiting, "default", "camera")) }},
		{"explained", func() { print.Explanation(&out, explain.Configuration(healthy, "default", "camera")) }},
		{"explained-closest", func() { print.Explanation(&out, unmatched(t)) }},
		{"overview", func() { print.Overview(&out, status.Of(skew), "v0.1.0", false) }},
		{"devices", func() { print.Devices(&out, status.Devices(healthy, ""), now, false) }},
		{"devices-wide", func() { print.Devices(&out, status.Devices(healthy, ""), now, true) }},
		{"slots", func() { print.Slots(&out, status.Slots(healthy, ""), true) }},
		{"handlers", func() { print.Handlers(&out, status.Handlers(healthy), now, true) }},
		{"handlers-offline", func() { print.Handlers(&out, status.Handlers(offline), now, false) }},
		{"trial", func() { print.Trial(&out, trials, false) }},
		{"trial-wide", func() { print.Trial(&out, trials, true) }},
		{"trial-without-device", func() { print.Trial(&out, trials[2:], false) }},
		{"plan", func() { print.Plan(&out, forget.Of(healthy, "node-b")) }},
		{"plan-of-no-change", func() { print.Plan(&out, forget.Of(healthy, "node-x")) }},
	} {
		out.Reset()
		c.write()
		fixture.Golden(t, "testdata/"+c.name+".golden", out.String(), *update)
	}
}

func TestFormats(t *testing.T) {
	value := map[string]string{"a": "<b>"}
	for format, want := range map[string]string{print.JSON: "{\n  \"a\": \"<b>\"\n}\n", print.YAML: "a: <b>\n"} {
		var out bytes.Buffer
		require.NoError(t, print.Value(&out, format, value, nil))
		require.Equal(t, want, out.String())
	}
	require.ErrorContains(t, print.Value(nil, "jsno", value, nil), `"jsno" is unknown`)
}
