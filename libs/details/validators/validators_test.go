package validators_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/catalog"
	"akri.sh/libs/details/detailstest"
	"akri.sh/libs/details/validators"
)

func TestCorpus(t *testing.T) {
	for _, handler := range catalog.Handlers {
		examples := detailstest.Corpus[handler.Name]
		require.NotEmpty(t, examples.Accepted, handler.Name)
		require.NotEmpty(t, examples.Refused, handler.Name)
		for _, details := range examples.Accepted {
			require.NoError(t, validators.Validate(handler.Name, details), details)
		}
		for _, details := range examples.Refused {
			err := validators.Validate(handler.Name, details)
			require.ErrorContains(t, err, "discoveryDetails: ", details)
			require.NotErrorIs(t, err, validators.ErrNotChecked, details)
		}
	}
}

func TestHandlersOfOthersPass(t *testing.T) {
	for _, handler := range []string{"", "lamp", "Udev", "udev-2"} {
		require.NoError(t, validators.Validate(handler, "{"))
		require.NoError(t, validators.Validate(handler, strings.Repeat("x", 1<<20)))
	}
}

// attacks are texts that cost much to parse, for each handler.
func attacks() map[string]string {
	all := map[string]string{
		"lists in lists":   strings.Repeat("[", 16<<10),
		"maps in maps":     strings.Repeat("{a: ", 4<<10),
		"indented lists":   strings.Repeat("- ", 8<<10),
		"many keys":        lines(1800, func(i int) string { return fmt.Sprintf("k%d: 1", i) }),
		"many documents":   strings.Repeat("---\n", 4<<10),
		"a long scalar":    strings.Repeat("x", 16<<10),
		"an alias bomb":    bomb(),
		"aliases of rules": "udevRules:\n- &a '" + strings.Repeat("x", 8<<10) + "'\n" + strings.Repeat("- *a\n", 3<<9),
		"too large":        "descriptions: [" + strings.Repeat("a,", 1<<20) + "]",
	}
	for key, format := range map[string]string{
		"descriptions": "descriptions: [%s]", "udevRules": "udevRules: [%s]", "uuids": "uuids: {items: [%s]}",
		"discoveryUrls": "opcuaDiscoveryMethod: {standard: {discoveryUrls: [%s]}}",
	} {
		all["short values of "+key] = fmt.Sprintf(format, strings.Repeat("a,", 8000))
		all["empty values of "+key] = fmt.Sprintf(format, strings.Repeat("'',", 5<<10))
		all["maps in "+key] = fmt.Sprintf(format, strings.Repeat("{},", 5<<10))
	}
	all["globs"] = `udevRules: ['KERNEL=="` + strings.Repeat("*[a-z]?|", 3<<9) + `"']`
	all["properties"] = "udevRules: []\nproperties:\n" + lines(1500, func(i int) string { return fmt.Sprintf("  k%d: a", i) })
	return all
}

func lines(count int, line func(int) string) string {
	var text strings.Builder
	for i := range count {
		text.WriteString(line(i) + "\n")
	}
	return text.String()
}

// bomb is a document in which each list has ten times the elements of the previous one.
func bomb() string {
	return "descriptions: &a0 [x]\n" + lines(9, func(i int) string {
		return fmt.Sprintf("a%d: &a%d [%s]", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	})
}

// maxAllocated is three to five times what a check allocates. The race detector makes pools drop
// their values, so that a check allocates up to 53 MB with it and 17 MB without.
const maxAllocated = 96 << 20

// TestCostIsLimited measures the memory of a check, and logs the time.
func TestCostIsLimited(t *testing.T) {
	for name, text := range attacks() {
		for _, handler := range catalog.Handlers {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			started := time.Now()
			_ = validators.Validate(handler.Name, text)
			elapsed := time.Since(started)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			require.Less(t, allocated, uint64(maxAllocated), "bytes allocated, %s: %s", handler.Name, name)
			t.Logf("%9d B %6d µs %s: %s", allocated, elapsed.Microseconds(), handler.Name, name)
		}
	}
}

func TestNotChecked(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"too large":         {"descriptions: [" + strings.Repeat("a,", 8<<10) + "]", "they have more than 16 KiB"},
		"an alias":          {"descriptions: [&a x, *a]", "they have YAML aliases"},
		"an alias in a map": {"descriptions: [a]\nother: {k: &a x, l: [*a]}", "they have YAML aliases"},
		"a merge":           {"descriptions: [a]\n<<: &a {}\nother: {<<: *a}", "they have YAML aliases"},
		"a value of itself": {"descriptions: &a [*a]", "they have YAML aliases"},
		"an alias bomb":     {bomb(), "they have YAML aliases"},
	} {
		t.Run(name, func(t *testing.T) {
			err := validators.Validate("debugEcho", c.text)
			require.ErrorIs(t, err, validators.ErrNotChecked)
			require.ErrorContains(t, err, c.want)
		})
	}
	require.NoError(t, validators.Validate("debugEcho", "descriptions: [&a x]"), "an anchor without an alias")
	require.NoError(t, validators.Validate("debugEcho", "descriptions: ['*a', \"*\"]"), "a star is no alias")
}

func FuzzValidate(f *testing.F) {
	for name, examples := range detailstest.Corpus {
		for _, details := range append(examples.Accepted, examples.Refused...) {
			f.Add(name, details)
		}
	}
	f.Add("debugEcho", "descriptions: &a [*a]")
	f.Fuzz(func(t *testing.T, handler, text string) {
		if err := validators.Validate(handler, text); err != nil {
			require.Contains(t, err.Error(), "discoveryDetails: ")
		}
	})
}
