package admission_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A review must not wait for a node: without a client of gRPC, and without the protocols of
// handlers, the package cannot call one.
func TestReviewsCallNoNode(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "akri.sh/services/broker-controller/internal/admission").Output()
	require.NoError(t, err)
	require.Contains(t, string(output), "akri.sh/libs/details/validators")
	for dependency := range strings.Lines(string(output)) {
		require.False(t, strings.HasPrefix(dependency, "google.golang.org/grpc") || strings.HasPrefix(dependency, "akri.sh/proto") ||
			strings.HasPrefix(dependency, "akri.sh/libs/rpc"), dependency)
	}
}
