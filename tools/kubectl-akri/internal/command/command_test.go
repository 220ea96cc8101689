package command_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/tools/kubectl-akri/internal/command"
)

func TestErrorsShowWhatToName(t *testing.T) {
	for _, usage := range []string{"explain (configuration|instance|pod) NAME", "forget NODE", "try HANDLER"} {
		name, _, _ := strings.Cut(usage, " ")
		root := command.New()
		root.SetArgs([]string{name})
		require.ErrorContains(t, root.Execute(), ": "+usage)
	}
}

// The names and messages of objects must not control the terminal of the user, whichever command
// shows them.
func TestOutputDoesNotControlTheTerminal(t *testing.T) {
	for _, leaf := range command.New().Commands() {
		t.Run(leaf.Name(), func(t *testing.T) {
			var out, problems bytes.Buffer
			root := command.New()
			root.SetOut(&out)
			root.SetErr(&problems)
			c, _, err := root.Find([]string{leaf.Name()})
			require.NoError(t, err)
			root.PersistentPreRun(c, nil)

			_, err = io.WriteString(c.ErrOrStderr(), "\x1b]0;x\a")
			require.NoError(t, err)
			_, err = io.WriteString(c.OutOrStdout(), "\u009b2J\u202eok\n")
			require.NoError(t, err)
			require.Equal(t, `\u009b2J\u202eok`+"\n", out.String())
			require.Equal(t, `\u001b]0;x\u0007`, problems.String())
		})
	}
}
