package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// movedSockets checks that the sockets of all services can move, as in an upgrade from a release
// with one directory for all, while handlers and brokers run.
func movedSockets(t *testing.T) {
	apply(t, echoConfiguration("e2e-moved", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-moved", 2)
	before := observe(t, "e2e-moved")
	for i, directory := range []string{"/run/akri-earlier", "/run/akri"} {
		require.NoError(t, akri.Install(t.Context(), "global.host.mesh="+directory))
		requireOwnDirectories(t, directory)
		name := []string{"e2e-moved-earlier", "e2e-moved-back"}[i]
		apply(t, echoConfiguration(name, 1, "", "foo0"))
		awaitInstances(t, "default", name, name+"-8120fe")
		require.Equal(t, before, observe(t, "e2e-moved"))
	}
}

// requireOwnDirectories checks that each service has a directory for its sockets that only root can
// open.
func requireOwnDirectories(t *testing.T, directory string) {
	t.Helper()
	services := []string{"registrar", "discovery-operator"}
	if !selected.dynamic {
		services = append(services, "config-plugin-allocator")
	}
	for _, node := range akri.Cluster.Nodes() {
		for _, service := range services {
			own := filepath.Join(node.Path(directory), service)
			require.Equal(t, []string{filepath.Join(own, service+".sock")}, sockets(t, own))
			info, err := os.Stat(own)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), own)
		}
	}
}
