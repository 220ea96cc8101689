package discovery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
)

// explain returns the groups of devices that come closest to the rules.
func explain(t testing.TB, kernel *fakeKernel, rules ...string) []*handler.NearMiss {
	t.Helper()
	inventory := discovery.NewInventory(kernel, func(string, int, time.Duration) {}, func() {}, zap.NewNop())
	closest, err := inventory.Explain(t.Context(), handler.Request{Details: details(t, rules...)})
	require.NoError(t, err)
	return closest
}

// details returns the discoveryDetails with the rules.
func details(t require.TestingT, rules ...string) string {
	text, err := yaml.Marshal(map[string][]string{"udevRules": rules})
	require.NoError(t, err)
	return string(text)
}

// lines returns one line for each group.
func lines(groups []*handler.NearMiss) (lines []string) {
	for _, miss := range groups {
		var names, missed []string
		for _, series := range miss.GetSeries() {
			names = append(names, strings.TrimSuffix(series.GetFirst()+".."+series.GetLast(), ".."))
		}
		for _, mismatch := range miss.GetMismatches() {
			missed = append(missed, fmt.Sprintf("%s: %q", mismatch.GetCondition(), mismatch.GetFound()))
		}
		lines = append(lines, fmt.Sprintf("%d %s %s: %s not %s", miss.GetCount(), miss.GetKind(),
			strings.Join(names, " "), strings.Join(miss.GetMet(), " "), strings.Join(missed, " ")))
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
			"1 video4linux /dev/video0: " + video + " not " + vendor + `: ["1d6b"]`,
			"1 video4linux /dev/video1: " + video + " not " + vendor + ": []",
			"1 net /devices/virtual/net/video9: " + video + " not " + vendor + ": []",
		}},
		// only the value of the name decides; the device below it that has no node is the same one
		{[]string{vendor}, []string{
			"1 usb /dev/bus/usb/001/002:  not " + vendor + `: ["1d6b"]`,
			"1 video4linux /dev/video0:  not " + vendor + `: ["1d6b"]`,
		}},
		{[]string{`ATTR{serial}=="a"`}, []string{`1 usb /dev/bus/usb/001/002:  not ATTR{serial}=="a": ["a??"]`}},
		// nothing in common
		{[]string{`KERNEL=="nothing"`}, nil},
		{[]string{`SUBSYSTEM!="net", KERNEL=="nothing"`}, nil},
		// a device that matches another rule is no miss
		{[]string{`SUBSYSTEM=="video4linux", KERNEL=="nothing"`, video}, nil},
		// of two rules, the closer one
		{[]string{`SUBSYSTEM=="video4linux", KERNEL=="a", TAG=="b"`, `SUBSYSTEM=="video4linux", KERNEL=="c"`}, []string{
			`2 video4linux /dev/video0../dev/video1: SUBSYSTEM=="video4linux" not KERNEL=="c": ["video0" "video1"]`,
		}},
		// one group for a kind
		{[]string{`SUBSYSTEM=="block", KERNEL=="nothing"`}, []string{
			`20 block /dev/disk0../dev/disk19: SUBSYSTEM=="block" not KERNEL=="nothing": ["disk0" "disk1" "disk2"]`,
		}},
	} {
		require.Equal(t, test.want, lines(explain(t, kernel, test.rules...)), test.rules)
	}
}

// Mistakes of users: the device that they mean comes first, and the corrected rule matches it.
func TestMistakes(t *testing.T) {
	kernel := newNode()
	for _, test := range []struct{ rule, device, corrected string }{
		// values
		{`KERNEL=="zrm*"`, "/dev/zram0", `KERNEL=="zram*"`},
		{`KERNEL=="zram"`, "/dev/zram0", `KERNEL=="zram*"`},
		{`KERNEL=="zarm*"`, "/dev/zram0", `KERNEL=="zram*"`},
		{`KERNEL=="ZRAM*"`, "/dev/zram0", `KERNEL=="zram*"`},
		{`KERNEL=="zrm3"`, "/dev/zram3", `KERNEL=="zram3"`},
		{`KERNEL=="zram[4-9]"`, "/dev/zram0", `KERNEL=="zram0"`},
		{`SUBSYSTEM=="block", KERNEL=="zrm*"`, "/dev/zram0", `SUBSYSTEM=="block", KERNEL=="zram*"`},
		{`SUBSYSTEM=="blok", KERNEL=="zram*"`, "/dev/zram0", `SUBSYSTEM=="block", KERNEL=="zram*"`},
		{`SUBSYSTEM=="blocks",KERNEL=="zrm*"`, "/dev/zram0", `SUBSYSTEM=="block",KERNEL=="zram*"`},
		{`KERNEL=="lop[0-9]*"`, "/dev/loop0", `KERNEL=="loop[0-9]*"`},
		{`KERNEL=="sf[a-z]"`, "/dev/sda", `KERNEL=="sd[a-z]"`},
		{`KERNEL=="zrm*|lop*"`, "/dev/loop0", `KERNEL=="zrm*|loop*"`},
		{`KERNEL=="nul|zer"`, "/dev/null", `KERNEL=="null|zer"`},
		{`KERNEL=="ttyusb*"`, "/dev/ttyUSB0", `KERNEL=="ttyUSB*", SUBSYSTEM=="tty"`}, // not also the device of usb-serial
		{`KERNEL=="ttyUSB1"`, "/dev/ttyUSB0", `KERNEL=="ttyUSB0", SUBSYSTEM=="tty"`},
		{`KERNEL=="vidoe*"`, "/dev/video0", `KERNEL=="video*"`},
		{`SUBSYSTEM=="video4linuxx"`, "/dev/video0", `SUBSYSTEM=="video4linux"`},
		{`SUBSYSTEM=="Video4Linux", ATTR{index}=="0"`, "/dev/video0", `SUBSYSTEM=="video4linux", ATTR{index}=="0"`},
		{`SUBSYSTEM=="v4l2"`, "", ""}, // nothing similar
		{`SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046e"`, "/dev/video0", `SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"`},
		{`SUBSYSTEM=="video4linux", ATTRS{idVendor}=="0x046d"`, "/dev/video0", `SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"`},
		{`SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046D"`, "/dev/video0", `SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"`},
		{`SUBSYSTEM=="video4linux", ATTRS{idVendor}=="1234"`, "/dev/video0", ""}, // another camera
		{`ATTRS{idVendor}=="1d6c"`, "/dev/bus/usb/001/001", `ATTRS{idVendor}=="1d6b", SUBSYSTEM=="usb"`},
		{`SUBSYSTEM=="usb", ATTR{product}=="HD Webcam C720"`, "/dev/bus/usb/001/003", `SUBSYSTEM=="usb", ATTR{product}=="HD Webcam C270"`},
		{`SUBSYSTEM=="video4linux", ENV{ID_V4L_CAPABILITIES}=="*:captur:*"`, "/dev/video0", `SUBSYSTEM=="video4linux", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"`},
		{`SUBSYSTEM=="pci", ATTR{vendor}=="10de"`, "/devices/pci0000:00/0000:01:00.0", `SUBSYSTEM=="pci", ATTR{vendor}=="0x10de"`},
		{`DRIVER=="vfio_pci"`, "/devices/pci0000:00/0000:01:00.0", `DRIVER=="vfio-pci"`},
		{`TAG=="uacess"`, "/dev/video0", `TAG=="uaccess"`},
		{`DEVPATH=="/sys/devices/virtual/block/zram0"`, "/dev/zram0", `DEVPATH=="/devices/virtual/block/zram0"`},
		{`DEVPATH=="/devices/virtual/blok/zram*"`, "/dev/zram0", `DEVPATH=="/devices/virtual/block/zram*"`},
		{`KERNEL=="veht*"`, "/devices/virtual/net/veth0ab0", `KERNEL=="veth*"`},
		{`SUBSYSTEM=="mem", KERNEL=="null", ENV{DEVNAME}=="/dev/nul"`, "/dev/null", `SUBSYSTEM=="mem", KERNEL=="null", ENV{DEVNAME}=="/dev/null"`},
		// keys
		{`SUBSYSTEM=="video4linux", ATTR{idVendor}=="046d"`, "/dev/video0", `SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"`},
		{`SUBSYSTEM=="tty", ATTR{idVendor}=="0403"`, "/dev/ttyUSB0", `SUBSYSTEM=="tty", ATTRS{idVendor}=="0403"`},
		{`SUBSYSTEM=="tty", DRIVER=="ftdi_sio"`, "/dev/ttyUSB0", `SUBSYSTEM=="tty", DRIVERS=="ftdi_sio"`},
		{`SUBSYSTEM=="tty", ATTRS{idvendor}=="0403"`, "/dev/ttyUSB0", `SUBSYSTEM=="tty", ATTRS{idVendor}=="0403"`},
		{`SUBSYSTEM=="tty", ENV{ID_VENDORID}=="0403"`, "/dev/ttyUSB0", `SUBSYSTEM=="tty", ENV{ID_VENDOR_ID}=="0403"`},
		{`SUBSYSTEM=="tty", ENV{idVendor}=="0403"`, "/dev/ttyUSB0", `SUBSYSTEM=="tty", ATTRS{idVendor}=="0403"`},
		{`KERNEL=="video4linux"`, "/dev/video0", `SUBSYSTEM=="video4linux"`},
		{`SUBSYSTEM=="ttyUSB*"`, "/dev/ttyUSB0", `KERNEL=="ttyUSB*", SUBSYSTEM=="tty"`},
		{`SUBSYSTEM=="vfio-pci"`, "/devices/pci0000:00/0000:01:00.0", `DRIVER=="vfio-pci"`},
		{`KERNEL=="/dev/zram0"`, "/dev/zram0", `ENV{DEVNAME}=="/dev/zram0"`},
		{`KERNEL=="hwrng"`, "/dev/hwrng", `ENV{DEVNAME}=="/dev/hwrng"`},
		{`KERNEL=="net/tun"`, "/dev/net/tun", `ENV{DEVNAME}=="/dev/net/tun"`},
		{`ENV{DEVNAME}=="ttyS0"`, "/dev/ttyS0", `KERNEL=="ttyS0"`},
		// no correction: the user excludes the device, no device has the value, or it would match
		// others
		{`SUBSYSTEM!="block", KERNEL=="zram?"`, "/dev/zram0", ""},
		{`KERNEL=="zram*", ATTR{size}=="99999999"`, "/dev/zram0", ""},
		{`KERNEL=="zram*", ATTR{none}=="1"`, "/dev/zram0", ""},
		{`SUBSYSTEM=="tty", KERNEL=="ttyz*"`, "/dev/tty0", `SUBSYSTEM=="tty", KERNEL=="tty0*"`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			found := explain(t, kernel, test.rule)
			if test.device == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Equal(t, test.device, found[0].GetDevice(), lines(found))
			var corrected struct {
				UdevRules []string `yaml:"udevRules"`
			}
			require.NoError(t, yaml.Unmarshal([]byte(found[0].GetCorrectedDetails()), &corrected))
			if test.corrected == "" {
				require.Empty(t, corrected.UdevRules)
				return
			}
			require.Equal(t, []string{test.corrected}, corrected.UdevRules)
		})
	}
}

// A correction that would match devices of another kind gets a subsystem, or is not offered.
func TestCorrectionsOfOneKind(t *testing.T) {
	kernel := newNode()
	kernel.plug(withNode("/devices/virtual/misc/zram-control", "misc", "zram-control", nil))
	for rule, want := range map[string]string{
		`KERNEL=="zrm*"`:  "udevRules:\n- KERNEL==\"zram*\", SUBSYSTEM==\"block\"\n",
		`KERNEL=="ttyz*"`: "", // tty* of the closest one, tty, would match all terminals
	} {
		if rule == `KERNEL=="ttyz*"` {
			kernel.plug(withNode("/devices/virtual/tty/tty", "tty", "tty", nil))
		}
		require.Equal(t, want, explain(t, kernel, rule)[0].GetCorrectedDetails(), rule)
	}
}

// The details keep their other content.
func TestCorrectedDetails(t *testing.T) {
	inventory := discovery.NewInventory(newNode(), func(string, int, time.Duration) {}, func() {}, zap.NewNop())
	closest, err := inventory.Explain(t.Context(), handler.Request{Details: `# disks in memory
udevRules:
- 'KERNEL=="nothing"'
- 'KERNEL=="zrm*"' # all
permissions: r
`})
	require.NoError(t, err)
	require.Equal(t, `# disks in memory
udevRules:
- 'KERNEL=="nothing"'
- 'KERNEL=="zram*"' # all
permissions: r
`, closest[0].GetCorrectedDetails())
}

// Many kinds of devices, and many devices of a kind, do not hide others.
func TestExplanationIsLimited(t *testing.T) {
	kernel := newNode()
	for i := range 50 {
		kernel.plug(withNode(fmt.Sprintf("/devices/virtual/many/x%dy%dz", i, i%7), "many", fmt.Sprint("x", i), attributes("size", fmt.Sprint(1000+i))))
	}
	found := explain(t, kernel, `ATTR{size}=="1099"`)
	require.Len(t, found, 5)
	subsystems := map[string]int{}
	for _, miss := range found {
		subsystems[miss.GetKind()]++
		require.LessOrEqual(t, len(miss.GetSeries()), 3)
		require.LessOrEqual(t, len(miss.GetMismatches()[0].GetFound()), 3)
	}
	require.Equal(t, "many", found[0].GetKind())

	found = explain(t, kernel, `SUBSYSTEM=="blockk"`)
	require.Len(t, found, 1)
	require.EqualValues(t, 208, found[0].GetCount())
	require.Equal(t, []string{"208 block /dev/loop0../dev/loop199 /dev/sda../dev/sda1 /dev/sdb../dev/sdb1: " + ` not SUBSYSTEM=="blockk": ["block"]`}, lines(found))

	// the same result for each order of the devices
	for range 10 {
		require.Equal(t, lines(found), lines(explain(t, kernel, `SUBSYSTEM=="blockk"`)))
	}
}

// The closest devices are returned before the time is over, without what takes longer.
func TestExplanationInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := newNode()
		kernel.delay = 5 * time.Millisecond
		inventory := discovery.NewInventory(kernel, func(string, int, time.Duration) {}, func() {}, zap.NewNop())
		explainIn := func(limit time.Duration) []*handler.NearMiss {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			closest, err := inventory.Explain(ctx, handler.Request{Details: details(t, `SUBSYSTEM=="video4linux", ATTR{idVendor}=="046d"`)})
			require.NoError(t, err)
			require.NotEmpty(t, closest)
			return closest
		}
		require.NotEmpty(t, explainIn(time.Minute)[0].GetCorrectedDetails())
		require.Empty(t, explainIn(5 * time.Second)[0].GetCorrectedDetails())
	})
}

// Callers wait for each other, and not longer than they want.
func TestOneExplanationAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := newNode()
		kernel.delay = time.Second
		inventory := discovery.NewInventory(kernel, func(string, int, time.Duration) {}, func() {}, zap.NewNop())
		first, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			_, err := inventory.Explain(first, handler.Request{Details: details(t, `SUBSYSTEM=="none"`)})
			stopped <- err
		}()
		synctest.Wait()

		second, cancelSecond := context.WithTimeout(t.Context(), time.Second)
		defer cancelSecond()
		_, err := inventory.Explain(second, handler.Request{Details: details(t, `KERNEL=="zrm*"`)})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, kernel.listings(), 1)
		cancel()
		require.ErrorIs(t, <-stopped, context.Canceled)

		kernel.delay = 0
		_, err = inventory.Explain(t.Context(), handler.Request{Details: details(t, `KERNEL=="zrm*"`)})
		require.NoError(t, err)
	})
}

func TestExplainInvalidRule(t *testing.T) {
	inventory := discovery.NewInventory(newFakeKernel(), func(string, int, time.Duration) {}, func() {}, zap.NewNop())
	_, err := inventory.Explain(t.Context(), handler.Request{Details: `udevRules: ['KERNEL="a"']`})
	require.ErrorContains(t, err, "operator = assigns")
}

// BenchmarkExplain compares 10,000 devices with a rule: with a mistake in a value, and in the name
// of a key.
func BenchmarkExplain(b *testing.B) {
	kernel := newNode()
	for i := range 10_000 {
		kernel.plug(withNode(fmt.Sprintf("/devices/pci0000:00/0000:00:1f.0/many/x%d", i), "many", fmt.Sprint("x", i), attributes("size", fmt.Sprint(i))))
	}
	for name, rule := range map[string]string{
		"value": `KERNEL=="zrm*"`, "path": `DEVPATH=="/devices/virtual/blok/zram*"`, "attribute": `SUBSYSTEM=="block", ATTRS{sise}=="4"`,
		"everything": `SUBSYSTEM=="many", ATTR{size}=="x"`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NotEmpty(b, explain(b, kernel, rule))
			}
		})
	}
}
