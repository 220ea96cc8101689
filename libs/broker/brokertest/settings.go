// Package brokertest tests the settings of brokers.
package brokertest

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented finds the names of settings in the first column of a table.
var documented = regexp.MustCompile("`([A-Z][A-Z0-9]*_[A-Z0-9_]+|[A-Z]{4,})`")

// CheckProperties sets each setting in the tables of a README as a device does, with and without
// the digest of the device. Those of properties must have an effect then, and all others none. base
// is the environment without them, and others has a value of each other setting. read returns the
// settings of an environment.
func CheckProperties(t *testing.T, readme string, base []string, properties, others map[string]string, read func(environ []string) (any, error)) {
	t.Helper()
	// hasEffect reports whether variables change the settings of base without those of the name.
	hasEffect := func(name string, variables ...string) bool {
		without := slices.DeleteFunc(slices.Clone(base), func(variable string) bool { return strings.HasPrefix(variable, name+"=") })
		before, beforeErr := read(without)
		after, afterErr := read(append(slices.Clip(without), variables...))
		return !reflect.DeepEqual(before, after) || fmt.Sprint(beforeErr) != fmt.Sprint(afterErr)
	}
	for name, value := range others {
		require.True(t, hasEffect(name, name+"="+value), "%s=%s has no effect", name, value)
		require.False(t, hasEffect(name, name+"="+value, name+"_8120FE="+value), "a device sets %s", name)
		require.False(t, hasEffect(name, name+"_8120FE="+value), "a device sets %s", name)
	}
	for name, value := range properties {
		require.True(t, hasEffect(name, name+"="+value, name+"_8120FE="+value), "a device does not set %s", name)
	}

	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	found := 0
	known := slices.Concat(slices.Collect(maps.Keys(properties)), slices.Collect(maps.Keys(others)))
	for line := range strings.Lines(string(text)) {
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !isRow || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, match := range documented.FindAllStringSubmatch(cell, -1) {
			require.Contains(t, known, match[1], "%s has a setting that the test does not have", readme)
			found++
		}
	}
	require.Positive(t, found)
}
