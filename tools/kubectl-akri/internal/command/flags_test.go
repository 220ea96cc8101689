package command

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

var flagTable = regexp.MustCompile("(?m)(^## Flags\n\n\\|.*\n\\|.*\n)((?:\\|.*\n)*)")

// TestFlags compares the flags of all commands with the table in docs/kubectl-akri.md. With
// AKRI_UPDATE_FLAGS=1 it writes the table instead.
func TestFlags(t *testing.T) {
	const page = "../../../../docs/kubectl-akri.md"
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	match := flagTable.FindSubmatchIndex(content)
	require.NotNil(t, match, "the page has no table of flags")
	root := New()
	rows := flagRows("all", root.PersistentFlags())
	for _, command := range root.Commands() {
		rows += flagRows("`"+command.Name()+"`", command.LocalNonPersistentFlags())
	}
	updated := string(content[:match[4]]) + rows + string(content[match[5]:])
	if os.Getenv("AKRI_UPDATE_FLAGS") != "" {
		require.NoError(t, os.WriteFile(page, []byte(updated), 0o644))
		return
	}
	require.Equal(t, string(content), updated, "the flags of docs/kubectl-akri.md; fix: make flags")
}

// flagRows returns the rows of the flags of a command, ordered by name.
func flagRows(command string, flags *pflag.FlagSet) string {
	var rows strings.Builder
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		names := "`--" + flag.Name + "`"
		if flag.Shorthand != "" {
			names = "`-" + flag.Shorthand + "`, " + names
		}
		value := ""
		if byDefault := strings.Trim(flag.DefValue, "[]"); byDefault != "" {
			value = "`" + byDefault + "`"
		}
		meaning := strings.ReplaceAll(flag.Usage, "|", `\|`)
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", command, names, cmp.Or(value, "none"), meaning)
	})
	return rows.String()
}
