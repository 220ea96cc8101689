package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// removedSockets removes all sockets of Akri on a node, also while registrar and discovery-operator
// restart. Akri's services and handlers work again by themselves. A handler of others has no socket
// until it is restarted; its stream stays open.
func removedSockets(t *testing.T) {
	const name, foreign = "e2e-sockets", "e2e-foreign"
	node := akri.Cluster.Nodes()[0]
	apply(t, echoConfiguration(name, 2, "", "foo0"))
	awaitNodes(t, name+"-8120fe", akri.Cluster.Nodes()[0].Name(), akri.Cluster.Nodes()[1].Name())
	apply(t, configurationOf(foreign, "e2eForeign", ""))
	handler := handle(t, node, "e2eForeign", &discoveryv0.Device{Id: "x"})
	awaitInstances(t, "default", foreign, instanceName(foreign, "x", "", true))

	own := servedSockets(t, node)
	own = slices.DeleteFunc(own, func(path string) bool { return filepath.Base(path) == "e2eForeign.sock" })
	requireOwnSockets(t, own)
	removeSockets(t, node)
	removed := time.Now()
	awaitServed(t, own)
	t.Logf("Akri serves again after %s", time.Since(removed).Round(time.Millisecond))
	awaitSocketMissing(t, node, "e2eForeign")
	t.Logf("the other handler has no socket after %s", time.Since(removed).Round(time.Second))
	handler.send(t, &discoveryv0.Device{Id: "x"}, &discoveryv0.Device{Id: "y"})
	awaitInstances(t, "default", foreign, instanceName(foreign, "x", "", true), instanceName(foreign, "y", "", true))
	brokenCluster{
		object: "configuration " + foreign,
		cause:  "HandlerSocketMissing", message: "/var/lib/akri/e2eForeign.sock", remedy: "spec.nodeName=" + node.Name(),
		began:     removed,
		state:     explain.Partly,
		condition: akriv0.ConditionDevicesWorking,
	}.checkEverywhere(t)
	// With Dynamic Resource Allocation, the kubelet has registered the driver again by now.
	usesDevice(t, node, "sockets-removed", name)

	removeSockets(t, node)
	restartInAnyOrder(t, node, "registrar", "discovery-operator")
	if selected.process("dra-kubelet-plugin") == "agent" {
		// The next Pod registers with a socket of its own; usesDevice shows that it has.
		own = slices.DeleteFunc(own, func(path string) bool { return filepath.Base(filepath.Dir(path)) == "plugins_registry" })
	}
	awaitServed(t, own)
	usesDevice(t, node, "sockets-restarted", name)
	awaitSocketMissing(t, node, "e2eForeign")
	awaitInstances(t, "default", foreign, instanceName(foreign, "x", "", true), instanceName(foreign, "y", "", true))

	handler.stop()
	handle(t, node, "e2eForeign", &discoveryv0.Device{Id: "x"})
	awaitHandlers(t, node, "e2eForeign", active)
	awaitInstances(t, "default", foreign, instanceName(foreign, "x", "", true))
	awaitVerdict(t, "default", foreign, akriv0.ConditionDevicesWorking, "Works")
}

// removedDirectories removes the directories of all sockets on a node. The containers still have
// the old ones, so that the kubelet must restart them.
func removedDirectories(t *testing.T) {
	onlyLong(t, "liveness checks fail three times before the kubelet restarts a container")
	const name = "e2e-directories"
	node := akri.Cluster.Nodes()[0]
	apply(t, echoConfiguration(name, 2, "", "foo0"))
	awaitNodes(t, name+"-8120fe", akri.Cluster.Nodes()[0].Name(), akri.Cluster.Nodes()[1].Name())
	own := servedSockets(t, node)
	requireOwnSockets(t, own)
	for _, directory := range []string{node.AkriDir(), node.RunDir()} {
		require.NoError(t, os.RemoveAll(directory))
	}
	removed := time.Now()
	awaitServed(t, own)
	awaitHandlers(t, node, "debugEcho", active)
	if !selected.dynamic { // it serves no socket in these directories, and calls those of others
		awaitNewContainer(t, servicePodOn(t, selected.process("device-plugin-host"), node.Name()), removed)
	}
	t.Logf("Akri serves again after %s", time.Since(removed).Round(time.Second))
	usesDevice(t, node, "sockets-directories", name)
}

// awaitNewContainer waits until the containers of the Pod have started after the time.
func awaitNewContainer(t *testing.T, pod *corev1.Pod, after time.Time) {
	t.Helper()
	pods := akri.Kubernetes.CoreV1().Pods(pod.Namespace)
	awaitObject(t, "a new container of "+pod.Name, pods, pod.Name, func(pod *corev1.Pod) error {
		for _, status := range pod.Status.ContainerStatuses {
			// Kubernetes has times in seconds.
			if status.State.Running == nil || status.State.Running.StartedAt.Time.Before(after.Truncate(time.Second)) {
				return fmt.Errorf("%s has not started again: %+v", status.Name, status.State)
			}
		}
		return nil
	})
}

// servedSockets returns the sockets of Akri on the node that a process serves.
func servedSockets(t *testing.T, node cluster.Node) []string {
	t.Helper()
	return slices.DeleteFunc(akriSockets(t, node), func(path string) bool { return dialed(t.Context(), path) != nil })
}

func akriSockets(t *testing.T, node cluster.Node) []string {
	t.Helper()
	all := append(sockets(t, node.AkriDir()), sockets(t, node.RunDir())...)
	if selected.dynamic {
		all = append(all, sockets(t, node.Path("/var/lib/kubelet/plugins_registry"))...)
	}
	return all
}

// requireOwnSockets requires the list to have the sockets of the services and of the default
// handlers.
func requireOwnSockets(t *testing.T, paths []string) {
	t.Helper()
	all := strings.Join(paths, " ")
	for _, socket := range []string{"agent-registration.sock", "registrar.sock", "discovery-operator.sock", "udev.sock"} {
		require.Contains(t, all, "/"+socket)
	}
}

func dialed(ctx context.Context, path string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

func removeSockets(t *testing.T, node cluster.Node) {
	t.Helper()
	for _, path := range akriSockets(t, node) {
		require.NoError(t, os.Remove(path))
	}
}

func awaitServed(t *testing.T, paths []string) {
	t.Helper()
	for _, path := range paths {
		await(t, path, func(ctx context.Context) error { return dialed(ctx, path) })
	}
}

// awaitSocketMissing waits until the registrar and the status of the Configuration show that the
// handler has no socket.
func awaitSocketMissing(t *testing.T, node cluster.Node, name string) {
	t.Helper()
	handler := awaitHandlers(t, node, name, offline)[0]
	require.Equal(t, registrarv1.OfflineCause_OFFLINE_CAUSE_SOCKET_MISSING, handler.GetOfflineCause())
	awaitCondition(t, "default", "e2e-foreign", akriv0.ConditionHandlerRegistered, metav1.ConditionFalse, akriv0.ReasonHandlerSocketMissing)
}

// restartInAnyOrder deletes the Pods of the services on the node, and waits for new ones.
func restartInAnyOrder(t *testing.T, node cluster.Node, services ...string) {
	t.Helper()
	rand.Shuffle(len(services), func(i, j int) { services[i], services[j] = services[j], services[i] })
	var processes []string
	for _, service := range services {
		processes = append(processes, selected.process(service))
	}
	processes = slices.Compact(processes)
	t.Logf("restarting %v", processes)
	pods := akri.Kubernetes.CoreV1().Pods(mesh.Namespace)
	for _, process := range processes {
		before := servicePodOn(t, process, node.Name())
		require.NoError(t, pods.Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
		awaitObjects(t, "another "+process, pods, ofService(process), func(found []corev1.Pod) error {
			for _, pod := range found {
				if pod.Spec.NodeName == node.Name() && pod.UID != before.UID && mesh.Ready(&pod) {
					return nil
				}
			}
			return errors.New("no other Pod is ready")
		})
	}
}

// usesDevice checks that a Pod on the node gets a device of the Configuration.
func usesDevice(t *testing.T, node cluster.Node, pod, configuration string) {
	t.Helper()
	selector := "spec:\n  nodeSelector: {kubernetes.io/hostname: " + node.Name() + "}"
	apply(t, strings.Replace(ownPod(pod, configuration), "spec:", selector, 1))
	awaitReadyPod(t, "default", pod)
}

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
