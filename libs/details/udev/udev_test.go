package udev_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/udev"
)

func TestInvalidDetailsAreRejected(t *testing.T) {
	for details, wants := range map[string][]string{
		``:                         {"udevRules: required"},
		`udevRules: ['']`:          {"udevRules[0]", "empty rule"},
		`udevRules: 'KERNEL=="a"'`: {"line 1"},
		`udevrules: []`:            {`unknown key "udevrules"`},
		"udevRules: ['A', 'KERNEL=']\npermissions: wr": {"udevRules[0]", "udevRules[1]", `permissions: "wr" must be one of r, w, m`},
		"udevRules: []\npermissions: ''":               {"permissions"},
		"{udevRules: [], properties: {A: 'ATTR{x', 1B: KERNEL, UDEV_DEVNODE: KERNEL, C: TAG}}": {
			`properties: A: "ATTR{x": position 6: expected a closing brace`, `1B: "KERNEL": the name must have only letters`,
			"UDEV_DEVNODE", "reserved", `C: "TAG": position 1`,
		},
		"{udevRules: [], properties: [SERIAL]}":                   {"line 1"},
		"{udevRules: [], properties: {" + manyProperties() + "}}": {"has 33 entries, must have at most 32"},
	} {
		_, err := udev.Parse(details)
		for _, want := range wants {
			require.ErrorContains(t, err, want, details)
		}
	}
}

func manyProperties() string {
	var list strings.Builder
	for i := range 33 {
		fmt.Fprintf(&list, "P%d: KERNEL, ", i)
	}
	return list.String()
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`udevRules: ['KERNEL=="a"']`, "udevRules: []\ngroupRecursive: true\npermissions: rw", "udevRules: &a [*a]", "{}",
		`{udevRules: ['KERNEL=="video0"'], properties: {A: "ATTRS{serial}"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := udev.Parse(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, d.Permissions)
		require.LessOrEqual(t, len(d.Properties), 32)
	})
}
