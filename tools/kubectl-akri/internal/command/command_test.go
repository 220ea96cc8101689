package command_test

import (
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
