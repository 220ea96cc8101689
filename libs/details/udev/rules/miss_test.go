package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/udev/rules"
)

func TestMiss(t *testing.T) {
	type miss struct {
		met       []string
		missed    string
		value     string
		exists    bool
		left      int
		selective bool
	}
	const kernel, vendor = `KERNEL=="video*"`, `ATTRS{idVendor}=="1234"`
	for rule, want := range map[string]miss{
		kernel:                     {met: []string{kernel}, selective: true},
		kernel + "," + vendor:      {[]string{kernel}, vendor, "046d", true, 1, true}, // the nearest ancestor with the attribute
		vendor + " , " + kernel:    {[]string{kernel}, vendor, "046d", true, 1, true},
		`KERNEL=="card*"`:          {nil, `KERNEL=="card*"`, "video0", true, 1, false}, // every device has a name
		`ATTR{index}=="7"`:         {nil, `ATTR{index}=="7"`, "0", true, 1, true},
		`ATTR{none}=="7"`:          {nil, `ATTR{none}=="7"`, "", false, 1, false},
		`ENV{ID_MODEL}=="x"`:       {nil, `ENV{ID_MODEL}=="x"`, "a,b(c)=@#'+", true, 1, true},
		`DRIVER=="x", TAG=="y"`:    {nil, `DRIVER=="x"`, "", false, 2, false},
		`TAG=="y", DRIVER=="x"`:    {nil, `TAG=="y"`, "seat, uaccess", true, 2, false},
		`DRIVER!="x", KERNEL=="y"`: {[]string{`DRIVER!="x"`}, `KERNEL=="y"`, "video0", true, 1, false},
		`KERNEL == "y", ` + kernel: {[]string{kernel}, `KERNEL == "y"`, "video0", true, 1, true},
		`ATTRS{product}=="W*",` + kernel + `,ATTRS{idVendor}=="1d6b"`: {
			[]string{`ATTRS{product}=="W*"`, kernel}, `ATTRS{idVendor}=="1d6b"`, "046d", true, 1, true}, // all plural keys of one ancestor
		`ATTRS{idVendor}=="1d6b", ATTRS{product}=="H*", DRIVERS=="x"`: {
			[]string{`ATTRS{idVendor}=="1d6b"`, `ATTRS{product}=="H*"`}, `DRIVERS=="x"`, "usb", true, 1, true},
	} {
		parsed, err := rules.Parse(rule)
		require.NoError(t, err, rule)
		got := parsed.Miss(camera())
		require.Equal(t, want, miss{got.Met, got.Missed, got.Value, got.Exists, got.Left, got.Selective}, rule)
		require.Equal(t, parsed.Matches(camera()), got.Left == 0, rule)
	}
}
