package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices/node"
	"akri.sh/integration/devices/opcua"
)

// opcuaServers runs third-party servers on the nodes' network: one that is configured directly, and
// one that a discovery server lists. As a separate service the handler serves on the
// network. A server that
// is deleted from the Configuration leaves by the list of the handler's new address, after the
// handler's Pod was replaced.
func opcuaServers(t *testing.T) {
	url := func(port int) string { return fmt.Sprintf("opc.tcp://%s:%d", cluster.NeighbourIP, port) }
	lds, alone, registered := url(4840)+"/", url(4841)+"/UA/Test", url(4842)+"/line"
	serveOPCUA(t, opcua.Config{Port: 4840, Discovery: true})
	serveOPCUA(t,
		opcua.Config{Port: 4841, URI: "urn:alone", Name: "Alone", Hostname: cluster.NeighbourIP},
		opcua.Config{Port: 4842, URI: "urn:registered", Name: "Registered", Hostname: cluster.NeighbourIP, Path: "/line", Register: lds},
	)
	apply(t, opcuaConfiguration(lds, alone))
	names := map[string]string{}
	for _, url := range []string{alone, registered} {
		names[instanceName("e2e-opcua", url, "", true)] = url
	}
	var want []string
	for name := range names {
		want = append(want, name)
	}
	awaitInstances(t, "default", "e2e-opcua", want...)
	await(t, "servers that try finds", func(ctx context.Context) error {
		_, err := tryOn(ctx, "opcua", "--url="+lds, "--url="+alone)(alone, registered)
		return err
	})
	for _, pod := range awaitBrokers(t, "default", "e2e-opcua", 2) {
		require.Equal(t, names[pod.Labels["akri.sh/instance"]], query(t, &pod).Env["OPCUA_DISCOVERY_URL"])
	}

	if selected.host == agent().host {
		return
	}
	handler := servicePods(t, "handler-opcua")[0]
	node, err := akri.Cluster.Node(handler.Spec.NodeName)
	require.NoError(t, err)
	deletePod(t, handler.Name)
	require.NoError(t, akri.ApplyText(t.Context(), opcuaConfiguration(alone)))
	awaitInventory(t, node, "e2e-opcua", true, alone)
	awaitInstances(t, "default", "e2e-opcua", instanceName("e2e-opcua", alone, "", true))
}

func opcuaConfiguration(urls ...string) string {
	return fmt.Sprintf(`
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: e2e-opcua, namespace: default}
spec:
  discoveryHandler:
    name: opcua
    discoveryDetails: |
      opcuaDiscoveryMethod: {standard: {discoveryUrls: ["%s"]}}
  capacity: 1
  brokerSpec:`, strings.Join(urls, `", "`)) + broker
}

// serveOPCUA runs servers on the nodes' network until the test ends, and returns them in the order
// of their configs.
func serveOPCUA(t *testing.T, configs ...opcua.Config) []*node.Program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // the first call installs the modules
	t.Cleanup(cancel)
	var group errgroup.Group
	servers := make([]*node.Program, len(configs))
	for i, config := range configs {
		config.Command = akri.Cluster.Neighbour
		group.Go(func() error {
			server, err := opcua.Start(ctx, config)
			if err == nil {
				servers[i] = server
				t.Cleanup(server.Stop)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	return servers
}
