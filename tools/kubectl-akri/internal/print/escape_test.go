package print_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/trial"
	"akri.sh/tools/kubectl-akri/internal/print"
)

// Values of properties are text of devices, and have any characters. Only kubectl akri try shows
// them. They control no terminal, and add no line to the table.
func TestValuesOfPropertiesAreEscaped(t *testing.T) {
	var all strings.Builder
	for r := range rune(0x2070) {
		all.WriteString("x" + string(r))
	}
	all.WriteString("\ufeff\xff\xed\xa0\x80")
	for _, wide := range []bool{false, true} {
		var plain, hostile bytes.Buffer
		printed := func(out *bytes.Buffer, value string) {
			print.Trial(print.Escaped(out), []trial.Result{{
				Node: "a", Answered: true, Devices: []trial.Device{{ID: "id", Properties: map[string]string{"A": value}}},
			}}, wide)
		}
		printed(&plain, "x")
		printed(&hostile, all.String())

		require.Equal(t, strings.Count(plain.String(), "\n"), strings.Count(hostile.String(), "\n"))
		for _, r := range strings.ReplaceAll(hostile.String(), "\n", "") {
			require.False(t, unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp), "%U", r)
		}
	}
}
