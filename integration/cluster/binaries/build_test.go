package binaries

import (
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLines counts the lines of a command, as for the progress of a build.
func TestLines(t *testing.T) {
	var count atomic.Int64
	output := &lines{count: &count}
	command := exec.Command("printf", "first\nsecond\n")
	command.Stdout = output
	require.NoError(t, command.Run())
	require.EqualValues(t, 2, count.Load())
	require.Equal(t, "first\nsecond\n", output.text.String())
}
