// Package javascript_test has a Discovery Handler that is not written in Go meet the real registrar and the real
// discovery-operator.
package javascript_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/node"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const within = 30 * time.Second

// world is a node's registrar and discovery-operator, as processes.
type world struct {
	root, dir, modules string
	devices            grpc.ServerStreamingClient[discoveryv1.WatchDevicesResponse]
	registrar          registrarv1.RegistrarServiceClient
}

func TestAHandlerInJavaScriptRegistersIsUsedDiesAndComesBack(t *testing.T) {
	w := newWorld(t)
	for name, endpoint := range map[string]string{"js-uds": filepath.Join(w.dir, "js.sock"), "js-network": freeAddress(t)} {
		t.Run(name, func(t *testing.T) {
			handler := w.handle(t, name, endpoint, "one", "two")
			w.configure(t, name)
			w.awaitDevices(t, name, "one", "two")
			w.awaitStatus(t, name, registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE)

			handler.Stop()
			w.awaitStatus(t, name, registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE)
			w.handle(t, name, endpoint, "one", "two", "three")
			w.awaitDevices(t, name, "one", "two", "three") // fails when any left in between
			w.awaitStatus(t, name, registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE)
		})
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := binaries.Root()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "js") //nolint:usetesting // the folders of t.TempDir have long names
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // the first time, the modules are installed
	defer cancel()
	modules, err := node.Modules(ctx, filepath.Join(root, "integration", "javascript"))
	require.NoError(t, err)
	w := &world{root: root, dir: dir, modules: modules}
	w.run(t, "registrar", "--handlers-dir="+dir, "--state-file="+filepath.Join(dir, "state.json"), "--socket="+w.socket("r"))
	w.run(t, "discovery-operator", "--node-name=here", "--socket="+w.socket("o"), "--registrar="+w.socket("r"),
		"--instance-writer=unix:///nowhere", "--kubeconfig="+kubeconfig(t))
	w.registrar = registrarv1.NewRegistrarServiceClient(w.dial(t, "r"))
	w.devices, err = discoveryv1.NewDeviceInventoryServiceClient(w.dial(t, "o")).
		WatchDevices(t.Context(), &discoveryv1.WatchDevicesRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return w
}

func (w *world) socket(name string) string { return "unix://" + filepath.Join(w.dir, name+".sock") }

func (w *world) dial(t *testing.T, name string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(w.socket(name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// run builds a service and runs it until the test ends.
func (w *world) run(t *testing.T, service string, flags ...string) {
	t.Helper()
	program := filepath.Join(w.dir, service)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/"+service)
	build.Dir = filepath.Join(w.root, "services", service)
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, append(flags, "--admin-address=")...)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
}

// handle runs the handler in JavaScript until it is stopped.
func (w *world) handle(t *testing.T, name, endpoint string, devices ...string) *node.Program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	arguments := append([]string{
		filepath.Join(w.root, "proto", "v0", "discovery.proto"), name, filepath.Join(w.dir, "agent-registration.sock"), endpoint,
	}, devices...)
	script := filepath.Join(w.root, "integration", "javascript", "handler.cjs")
	handler, err := node.Start(context.WithoutCancel(ctx), w.modules, script, arguments...)
	require.NoError(t, err)
	t.Cleanup(handler.Stop)
	_, err = handler.Await(ctx, "registered")
	require.NoError(t, err)
	return handler
}

func (w *world) configure(t *testing.T, handler string) {
	t.Helper()
	client, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	_, err = client.In("default").Create(t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: handler},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: handler, DiscoveryDetails: "x"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// awaitDevices waits for a complete list of exactly these, and fails when one that was there leaves.
func (w *world) awaitDevices(t *testing.T, configuration string, ids ...string) {
	t.Helper()
	most := 0
	for {
		inventory, err := w.devices.Recv()
		require.NoError(t, err)
		for _, one := range inventory.GetConfigurations() {
			if one.GetName() != configuration {
				continue
			}
			require.GreaterOrEqual(t, len(one.GetDevices()), most, "a device has left: %v", one)
			most = len(one.GetDevices())
			if one.GetComplete() && most == len(ids) {
				for _, device := range one.GetDevices() {
					require.Contains(t, ids, device.GetId())
					require.Equal(t, device.GetId(), device.GetProperties()["JS_DEVICE"])
				}
				return
			}
		}
	}
}

func (w *world) awaitStatus(t *testing.T, name string, status registrarv1.HandlerStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		table, err := w.registrar.ListHandlers(t.Context(), &registrarv1.ListHandlersRequest{})
		require.NoError(t, err)
		for _, handler := range table.GetHandlers() {
			if handler.GetName() == name {
				return handler.GetStatus() == status
			}
		}
		return false
	}, within, 10*time.Millisecond, status.String())
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// kubeconfig names the test's API server.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config := server.Config()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData, InsecureSkipTLSVerify: config.Insecure,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			Token: config.BearerToken, ClientCertificate: config.CertFile, ClientKey: config.KeyFile,
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}
