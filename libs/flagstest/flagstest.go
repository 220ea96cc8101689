// Package flagstest compares the flags of a service with the table in its README.
package flagstest

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/service"
)

// Check fails the test if the table in the section "Flags" of README.md has other flags,
// environment variables or defaults than the Config. With AKRI_UPDATE_FLAGS=1 it writes the table
// instead. The meanings are those of the README, or the help of a flag that is not in the table.
// Flags with one of the prefixes are described elsewhere.
func Check[C any](t *testing.T, prefixes ...string) {
	t.Helper()
	CheckSection[C](t, "README.md", "Flags", prefixes...)
}

// CheckSection is Check for the table in another file and section.
func CheckSection[C any](t *testing.T, file, section string, prefixes ...string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	updated := update(t, string(content), section, described(service.Flags[C](), prefixes))
	if os.Getenv("AKRI_UPDATE_FLAGS") != "" {
		require.NoError(t, os.WriteFile(file, []byte(updated), 0o644))
		return
	}
	require.Equal(t, string(content), updated, "the flags of %s; fix: make flags", file)
}

// described returns the flags that the table lists.
func described(flags []*kong.Flag, prefixes []string) []*kong.Flag {
	return slices.DeleteFunc(flags, func(flag *kong.Flag) bool {
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(flag.Name, prefix) }
		return flag.Name == "help" || flag.Hidden || slices.ContainsFunc(prefixes, hasPrefix)
	})
}

// update returns the README with the rows of the flags: in the order of the README, then those that
// it lacks. Rows of groups of flags, such as `--<component>-<flag>`, stay.
func update(t *testing.T, readme, section string, flags []*kong.Flag) string {
	t.Helper()
	table := regexp.MustCompile("(?m)(^##+ " + regexp.QuoteMeta(section) + "\n\n\\|.*\n\\|.*\n)((?:\\|.*\n)*)")
	match := table.FindStringSubmatchIndex(readme)
	require.NotNil(t, match, "the README has no table of flags")
	var rows strings.Builder
	for line := range strings.Lines(readme[match[4]:match[5]]) {
		former := cells(line)
		isFlag := func(flag *kong.Flag) bool { return former[0] == "`--"+flag.Name+"`" }
		if i := slices.IndexFunc(flags, isFlag); i >= 0 {
			rows.WriteString(row(flags[i], former))
			flags = slices.Delete(flags, i, i+1)
		} else if strings.Contains(former[0], "<") {
			rows.WriteString(line)
		}
	}
	for _, flag := range flags {
		rows.WriteString(row(flag, make([]string, 4)))
	}
	return readme[:match[4]] + rows.String() + readme[match[5]:]
}

// cells returns the four cells of a row.
func cells(row string) []string {
	cells := strings.SplitN(strings.Trim(strings.TrimSpace(row), "|")+"|||", "|", 5)[:4]
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// row returns the row of a flag. Without a default, that of the former row is a description.
func row(flag *kong.Flag, former []string) string {
	var variables []string
	for _, variable := range flag.Envs {
		if variable != "-" {
			variables = append(variables, "`"+variable+"`")
		}
	}
	byDefault := former[2]
	switch {
	case flag.Required:
		byDefault = "required"
	case flag.Default != "":
		byDefault = "`" + flag.Default + "`"
	case flag.IsBool() && flag.Name != "version":
		byDefault = "`false`"
	}
	var row strings.Builder
	for _, cell := range []string{"`--" + flag.Name + "`", strings.Join(variables, ", "), byDefault, cmp.Or(former[3], flag.Help)} {
		row.WriteString(strings.TrimRight("| "+cell, " ") + " ")
	}
	return row.String() + "|\n"
}
