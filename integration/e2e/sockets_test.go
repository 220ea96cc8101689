package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	discoveryv0 "akri.sh/proto/v0"
)

// movedSockets checks that the sockets of all services and handlers can move, as in an upgrade from
// a release with one directory for all, while handlers and brokers run.
func movedSockets(t *testing.T) {
	apply(t, echoConfiguration("e2e-moved", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-moved", 2)
	before := observe(t, "e2e-moved")
	for _, move := range []struct{ name, mesh, handlers string }{
		{"e2e-moved-earlier", "/run/akri-earlier", "/var/lib/akri-earlier"},
		{"e2e-moved-back", "/run/akri", "/var/lib/akri"},
	} {
		require.NoError(t, akri.Install(t.Context(), "global.host.mesh="+move.mesh, "global.host.handlers="+move.handlers))
		requireOwnDirectories(t, move.mesh)
		apply(t, echoConfiguration(move.name, 1, "", "foo0"))
		awaitInstances(t, "default", move.name, move.name+"-8120fe")
		requireHandlersIn(t, move.handlers, move.name+"-own")
		require.Equal(t, before, observe(t, "e2e-moved"))
	}
}

// requireHandlersIn checks that handlers can register in the directory, and that a handler with a
// socket in it is used.
func requireHandlersIn(t *testing.T, directory, name string) {
	t.Helper()
	for _, node := range akri.Cluster.Nodes() {
		registration := filepath.Join(node.Path(directory), "agent-registration.sock")
		require.Contains(t, sockets(t, node.Path(directory)), registration)
	}
	request := &discoveryv0.RegisterDiscoveryHandlerRequest{Name: name, Endpoint: name, Shared: true}
	handleIn(t, akri.Cluster.Nodes()[0].Path(directory), request, &discoveryv0.Device{Id: "x"})
	apply(t, configurationOf(name, name, ""))
	awaitInstances(t, "default", name, instanceName(name, "x", "", true))
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
