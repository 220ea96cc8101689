package opcua_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/node"
	"akri.sh/integration/devices/opcua"
)

// TestHandlerFindsNodeOPCUAServers runs the handler-opcua binary against servers of another
// implementation, directly and through a discovery server.
func TestHandlerFindsNodeOPCUAServers(t *testing.T) {
	ports := freePorts(t, 6)
	at := func(i int) string { return fmt.Sprintf("opc.tcp://127.0.0.1:%d", ports[i]) }
	lds := at(0) + "/"
	start(t, opcua.Config{Port: ports[0], Discovery: true})
	start(t,
		opcua.Config{Port: ports[1], URI: "urn:a", Name: "A", Hostname: "127.0.0.1", Register: lds},
		opcua.Config{Port: ports[2], URI: "urn:b", Name: "B", Hostname: "plc.invalid", Path: "/line", Register: lds, Type: "ClientServer"},
		opcua.Config{Port: ports[3], URI: "urn:c", Name: "C", Hostname: "other.invalid", Path: "/alone"},
		opcua.Config{Port: ports[4], URI: "urn:d", Name: "Simulator", Hostname: "127.0.0.1"},
	)
	stream := discover(t, fmt.Sprintf(`
opcuaDiscoveryMethod: {standard: {discoveryUrls: ["%s", "%s/UA/Test", "%s/", "%s/", "%s/", "opc.tcp://nosuchhost.invalid:4840/"]}}
applicationNames: {action: Exclude, items: [Simulator]}`, lds, at(1), at(3), at(4), at(5)))
	list, err := stream.Recv()
	require.NoError(t, err)
	devices := map[string]map[string]string{}
	for _, device := range list.GetDevices() {
		require.NotContains(t, devices, device.GetId())
		require.Contains(t, device.GetProperties()["OPCUA_SECURITY_POLICIES"], "Basic256Sha256")
		delete(device.GetProperties(), "OPCUA_SECURITY_POLICIES")
		devices[device.GetId()] = device.GetProperties()
	}
	require.Equal(t, map[string]map[string]string{
		at(1) + "/UA/Test": properties(at(1)+"/UA/Test", "urn:a", "A"),
		at(2) + "/line":    properties(at(2)+"/line", "urn:b", "B"),
		at(3) + "/alone":   properties(at(3)+"/alone", "urn:c", "C"),
	}, devices)
}

func properties(url, uri, name string) map[string]string {
	return map[string]string{"OPCUA_DISCOVERY_URL": url, "OPCUA_APPLICATION_URI": uri, "OPCUA_APPLICATION_NAME": name}
}

// start runs servers until the test ends.
func start(t *testing.T, configs ...opcua.Config) (servers []*node.Program) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // the first run installs the npm modules
	t.Cleanup(cancel)
	var starting errgroup.Group
	servers = make([]*node.Program, len(configs))
	for i, config := range configs {
		starting.Go(func() error {
			server, err := opcua.Start(ctx, config)
			if err == nil {
				t.Cleanup(server.Stop)
			}
			servers[i] = server
			return err
		})
	}
	require.NoError(t, starting.Wait())
	return servers
}

// freePorts returns n different ports that were free at the time of the call.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// discover builds and runs the handler and opens a Discover stream.
func discover(t *testing.T, details string) grpc.ServerStreamingClient[discoveryv0.DiscoverResponse] {
	t.Helper()
	root, err := binaries.Root()
	require.NoError(t, err)
	directory, err := os.MkdirTemp("", "o") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(directory, "handler"), "./cmd/handler-opcua")
	build.Dir = filepath.Join(root, "services", "handler-opcua")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	handler := exec.CommandContext(t.Context(), filepath.Join(directory, "handler"),
		"--admin-address=", "--discovery-handlers-directory", directory)
	stderr := &strings.Builder{}
	handler.Stderr = stderr
	require.NoError(t, handler.Start())
	t.Cleanup(func() {
		_ = handler.Process.Kill()
		_ = handler.Wait()
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	conn, err := grpc.NewClient("unix://"+filepath.Join(directory, "opcua.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	t.Cleanup(cancel)
	stream, err := discoveryv0.NewDiscoveryHandlerClient(conn).Discover(ctx,
		&discoveryv0.DiscoverRequest{DiscoveryDetails: details}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return stream
}
