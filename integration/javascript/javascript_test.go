// Package javascript_test tests the registrar and the discovery-operator with a Discovery Handler
// in JavaScript.
package javascript_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/kube/kubetest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/node"
	"akri.sh/integration/process"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const timeout = 30 * time.Second

const (
	waiting = registrarv1.HandlerStatus_HANDLER_STATUS_WAITING
	active  = registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE
	offline = registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
	removed = registrarv1.HandlerStatus_HANDLER_STATUS_UNSPECIFIED // not in the table
)

// environment is the registrar and the discovery-operator of a node and an instance-writer, as
// processes.
type environment struct {
	root, dir, modules string
	devices            grpc.ServerStreamingClient[discoveryv1.WatchDevicesResponse]
	longest            map[string]int // number of devices in the longest list, by Configuration
	registrar          registrarv1.RegistrarServiceClient
}

// TestHandlerInJavaScript registers a handler, uses it, kills it and starts it again.
func TestHandlerInJavaScript(t *testing.T) {
	e := newEnvironment(t, time.Hour)
	address, err := process.FreeAddress(t.Context())
	require.NoError(t, err)
	for name, endpoint := range map[string]string{"js-uds": filepath.Join(e.dir, "js.sock"), "js-network": address} {
		t.Run(name, func(t *testing.T) {
			handler := e.handle(t, name, endpoint, "one", "two")
			e.configure(t, name)
			e.awaitDevices(t, name, "one", "two")
			e.awaitStatus(t, name, active)

			handler.Stop()
			e.awaitStatus(t, name, offline)
			e.handle(t, name, endpoint, "one", "two", "three")
			e.awaitDevices(t, name, "one", "two", "three") // fails if a device was removed meanwhile
			e.awaitStatus(t, name, active)
		})
	}
}

// A handler that sends no empty list, like those of upstream Akri, loses its devices after the
// grace.
func TestHandlerWithoutFirstList(t *testing.T) {
	e := newEnvironment(t, 3*time.Second)
	endpoint := filepath.Join(e.dir, "js.sock")
	handler := e.handle(t, "js-silent", endpoint, "one")
	e.configure(t, "js-silent")
	e.awaitDevices(t, "js-silent", "one")
	handler.Stop()
	e.handle(t, "js-silent", endpoint)
	e.awaitStatus(t, "js-silent", active)
	e.awaitNoDevices(t, "js-silent")
	e.awaitStatus(t, "js-silent", active)
}

// TestHandlerStates checks all statuses of a handler, from its registration to its removal.
func TestHandlerStates(t *testing.T) {
	e := newEnvironment(t, 3*time.Second)
	handler := e.handle(t, "js-states", filepath.Join(e.dir, "js.sock"), "one")
	e.awaitStatus(t, "js-states", waiting)
	e.configure(t, "js-states")
	e.awaitDevices(t, "js-states", "one")
	e.awaitStatus(t, "js-states", active)

	handler.Stop()
	e.awaitStatus(t, "js-states", offline)
	e.remove(t, "js-states")
	e.awaitStatus(t, "js-states", waiting)
	e.configure(t, "js-states")
	e.awaitStatus(t, "js-states", offline)
	e.awaitStatus(t, "js-states", removed)
	e.awaitNoDevices(t, "js-states")
}

func newEnvironment(t *testing.T, grace time.Duration) *environment {
	t.Helper()
	root, err := binaries.Root()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "js") //nolint:usetesting // socket paths must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // the first test installs the modules
	t.Cleanup(cancel)
	modules, err := node.Modules(ctx, filepath.Join(root, "integration", "javascript"))
	require.NoError(t, err)
	e := &environment{root: root, dir: dir, modules: modules, longest: map[string]int{}}
	run(t, "registrar", "--handlers-dir="+dir, "--state-file="+filepath.Join(dir, "state.json"), "--keep-offline="+grace.String(), "--socket="+e.socket("r"))
	run(t, "discovery-operator", append(startWriter(t),
		"--node-name=node-a", "--socket="+e.socket("o"), "--registrar="+e.socket("r"), "--handler-grace="+grace.String())...)
	e.registrar = registrarv1.NewRegistrarServiceClient(e.dial(t, "r"))
	e.devices, err = discoveryv1.NewDeviceInventoryServiceClient(e.dial(t, "o")).
		WatchDevices(ctx, &discoveryv1.WatchDevicesRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return e
}

func (e *environment) socket(name string) string {
	return "unix://" + filepath.Join(e.dir, name+".sock")
}

func (e *environment) dial(t *testing.T, name string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(e.socket(name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// startWriter runs an instance-writer and returns the flags by which discovery-operator calls it.
func startWriter(t *testing.T) []string {
	t.Helper()
	nodes, err := kube.Nodes(server.Config())
	require.NoError(t, err)
	_, err = nodes.In("").Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, nodes.In("").Delete(context.WithoutCancel(t.Context()), "node-a", metav1.DeleteOptions{}))
	})

	writer, err := process.StartWriter(context.WithoutCancel(t.Context()), server, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = writer.Stop() })
	flags, err := writer.Flags(t.Context(), identitytest.DiscoveryOperator, "node-a")
	require.NoError(t, err)
	return flags
}

// run builds a service and runs it until the test ends.
func run(t *testing.T, service string, flags ...string) {
	t.Helper()
	started, err := process.Start(context.WithoutCancel(t.Context()), nil, service, append(flags, "--admin-address=")...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = started.Stop() })
}

// handle runs the handler in JavaScript.
func (e *environment) handle(t *testing.T, name, endpoint string, devices ...string) *node.Program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	arguments := append([]string{
		filepath.Join(e.root, "proto", "v0", "discovery.proto"), name, filepath.Join(e.dir, "agent-registration.sock"), endpoint,
	}, devices...)
	script := filepath.Join(e.root, "integration", "javascript", "handler.cjs")
	handler, err := node.Start(context.WithoutCancel(ctx), e.modules, script, arguments...)
	require.NoError(t, err)
	t.Cleanup(handler.Stop)
	_, err = handler.Await(ctx, "registered")
	require.NoError(t, err)
	return handler
}

func (e *environment) configure(t *testing.T, handler string) {
	t.Helper()
	client, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	_, err = client.In("default").Create(t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: handler},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: handler, DiscoveryDetails: "x"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (e *environment) remove(t *testing.T, handler string) {
	t.Helper()
	client, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	require.NoError(t, client.In("default").Delete(t.Context(), handler, metav1.DeleteOptions{}))
}

// awaitNoDevices waits for a complete list without devices.
func (e *environment) awaitNoDevices(t *testing.T, configuration string) {
	t.Helper()
	for {
		inventory, err := e.devices.Recv()
		require.NoError(t, err)
		for _, list := range inventory.GetConfigurations() {
			if list.GetName() == configuration && list.GetComplete() && len(list.GetDevices()) == 0 {
				return
			}
		}
	}
}

// awaitDevices waits for a complete list of exactly these devices. It fails if a list is shorter
// than an earlier one, also of an earlier call.
func (e *environment) awaitDevices(t *testing.T, configuration string, ids ...string) {
	t.Helper()
	for {
		inventory, err := e.devices.Recv()
		require.NoError(t, err)
		for _, list := range inventory.GetConfigurations() {
			if list.GetName() != configuration {
				continue
			}
			require.GreaterOrEqual(t, len(list.GetDevices()), e.longest[configuration], "a device was removed: %v", list)
			e.longest[configuration] = len(list.GetDevices())
			if list.GetComplete() && len(list.GetDevices()) == len(ids) {
				for _, device := range list.GetDevices() {
					require.Contains(t, ids, device.GetId())
					require.Equal(t, device.GetId(), device.GetProperties()["JS_DEVICE"])
				}
				return
			}
		}
	}
}

func (e *environment) awaitStatus(t *testing.T, name string, status registrarv1.HandlerStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		table, err := e.registrar.ListHandlers(t.Context(), &registrarv1.ListHandlersRequest{})
		require.NoError(t, err)
		for _, handler := range table.GetHandlers() {
			if handler.GetName() == name {
				return handler.GetStatus() == status
			}
		}
		return status == removed
	}, timeout, 10*time.Millisecond, status.String())
}
