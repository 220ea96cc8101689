package binaries

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKubernetesVersions compares the versions that programs state with those that their modules
// pin.
func TestKubernetesVersions(t *testing.T) {
	root, err := Root()
	require.NoError(t, err)
	modules := map[string]string{"tools/kubernetes": kubernetesVersion}
	for _, version := range earlierVersions {
		modules["tools/kubernetes-"+minorOf(version)] = version
	}
	for module, version := range modules {
		command := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		command.Dir = filepath.Join(root, module)
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		output, err := command.Output()
		require.NoError(t, err, module)
		require.Equal(t, version, strings.TrimSpace(string(output)), module)
	}
	for _, p := range append(Programs(), earlierPrograms()...) {
		if strings.HasPrefix(p.Package, "k8s.io/kubernetes/") {
			require.Contains(t, p.LinkFlags, "gitVersion="+modules[p.Module])
		}
	}
}
