package discovery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
)

// explain returns one line for each device.
func explain(t *testing.T, kernel *fakeKernel, rules ...string) (lines []string) {
	t.Helper()
	inventory := discovery.NewInventory(kernel, func(string, int, time.Duration) {}, zap.NewNop())
	closest, err := inventory.Explain(t.Context(), handler.Request{Details: "udevRules: ['" + strings.Join(rules, "', '") + "']"})
	require.NoError(t, err)
	for _, miss := range closest {
		value := "none"
		if miss.Value != nil {
			value = fmt.Sprintf("%q", miss.GetValue())
		}
		lines = append(lines, fmt.Sprintf("%s: %s, not %s: %s", miss.GetDevice(), strings.Join(miss.GetMet(), " "), miss.GetMissed(), value))
	}
	return lines
}

func TestExplain(t *testing.T) {
	const body = "/devices/pci0/usb1/1-1"
	kernel := newFakeKernel(
		fakeDevice{Path: body, Node: "/dev/bus/usb/001/002", Sub: "usb", Attributes: map[string]string{"idVendor": "1d6b", "serial": "a\x00\xff"}},
		fakeDevice{Path: body + "/1-1:1.0", Sub: "usb"},
		fakeDevice{Path: body + "/1-1:1.0/video4linux/video0", Node: "/dev/video0", Sub: "video4linux"},
		fakeDevice{Path: "/devices/virtual/video4linux/video1", Node: "/dev/video1", Sub: "video4linux"},
		fakeDevice{Path: "/devices/virtual/net/video9", Sub: "net"},
	)
	for i := range 20 {
		kernel.plug(fakeDevice{Path: fmt.Sprintf("/devices/virtual/block/disk%d", i), Node: fmt.Sprintf("/dev/disk%d", i), Sub: "block"})
	}
	const video, vendor = `KERNEL=="video*"`, `ATTRS{idVendor}=="046d"`
	for _, test := range []struct {
		rules []string
		want  []string
	}{
		{[]string{video + ", " + vendor}, []string{
			"/dev/video0: " + video + ", not " + vendor + `: "1d6b"`,
			"/dev/video1: " + video + ", not " + vendor + ": none",
			"/devices/virtual/net/video9: " + video + ", not " + vendor + ": none",
		}},
		// only the value of the name decides: one line for a device and the devices below it that
		// have no node
		{[]string{vendor}, []string{
			"/dev/bus/usb/001/002: , not " + vendor + `: "1d6b"`,
			"/dev/video0: , not " + vendor + `: "1d6b"`,
		}},
		{[]string{`ATTR{serial}=="a"`}, []string{`/dev/bus/usb/001/002: , not ATTR{serial}=="a": "a??"`}},
		// nothing in common
		{[]string{`KERNEL=="none"`}, nil},
		{[]string{`SUBSYSTEM!="net", KERNEL=="none"`}, nil},
		// a device that matches another rule is no miss
		{[]string{`SUBSYSTEM=="video4linux", KERNEL=="none"`, video}, nil},
		// of two rules, the closer one
		{[]string{`SUBSYSTEM=="video4linux", KERNEL=="a", TAG=="b"`, `SUBSYSTEM=="video4linux", KERNEL=="c"`}, []string{
			`/dev/video0: SUBSYSTEM=="video4linux", not KERNEL=="c": "video0"`,
			`/dev/video1: SUBSYSTEM=="video4linux", not KERNEL=="c": "video1"`,
		}},
	} {
		require.Equal(t, test.want, explain(t, kernel, test.rules...), test.rules)
	}
	require.Len(t, explain(t, kernel, `SUBSYSTEM=="block", KERNEL=="none"`), 5)
}

func TestExplainInvalidRule(t *testing.T) {
	inventory := discovery.NewInventory(newFakeKernel(), func(string, int, time.Duration) {}, zap.NewNop())
	_, err := inventory.Explain(t.Context(), handler.Request{Details: `udevRules: ['KERNEL="a"']`})
	require.ErrorContains(t, err, "operator = assigns")
}
