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
		require.Equal(t, version, pinned(t, filepath.Join(root, module), "k8s.io/kubernetes"), module)
	}
	for _, p := range append(Programs(), earlierPrograms()...) {
		if strings.HasPrefix(p.Package, "k8s.io/kubernetes/") {
			require.Contains(t, p.LinkFlags, "gitVersion="+modules[p.Module])
		}
	}
}

// TestEtcdVersions checks that the program that restores etcd has the version of the server.
func TestEtcdVersions(t *testing.T) {
	root, err := Root()
	require.NoError(t, err)
	const server = "go.etcd.io/etcd/server/v3"
	require.Equal(t, pinned(t, filepath.Join(root, "tools/kubernetes"), server), pinned(t, filepath.Join(root, "tools/etcdutl"), server))
}

// pinned returns the version of a dependency of the module in the directory.
func pinned(t *testing.T, module, dependency string) string {
	t.Helper()
	command := exec.Command("go", "list", "-m", "-f", "{{.Version}}", dependency)
	command.Dir = module
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	output, err := command.Output()
	require.NoError(t, err, module)
	return strings.TrimSpace(string(output))
}
