package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"akri.sh/integration/devices/netns"
)

// Node is one node of a cluster on this machine: a network namespace and a mount namespace with a
// kubelet, containerd and kube-proxy. /dev and /sys are the machine's, so all nodes see a device
// that is plugged in. /var/lib, /var/log and /run are separate for each node and are below Path on
// the machine.
type Node struct {
	cluster *Cluster
	name    string
	index   int
}

// Name is the node's name in Kubernetes.
func (n Node) Name() string { return n.name }

// IP is the node's address. It is reachable only from the cluster's network namespaces.
func (n Node) IP() string { return nodeIP(n.index) }

// Path returns the machine's path of a node's path in /var/lib, /var/log or /run.
func (n Node) Path(path string) string { return n.cluster.node(n.name, "root", path) }

// KubeletDir is the machine's path of the node's /var/lib/kubelet.
func (n Node) KubeletDir() string { return n.Path("/var/lib/kubelet") }

// AkriDir is the machine's path of the node's /var/lib/akri.
func (n Node) AkriDir() string { return n.Path("/var/lib/akri") }

// RunDir is the machine's path of the node's /run/akri.
func (n Node) RunDir() string { return n.Path("/run/akri") }

// Command returns a command that runs on the node: in its namespaces, with the cluster's binaries
// in PATH. It is killed when the node is stopped. Command fails if the node is stopped.
func (n Node) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	enter, err := n.enter()
	if err != nil {
		return nil, err
	}
	return n.cluster.entering(ctx, n.cluster.cgroup(n.name, "commands"), enter, name, args)
}

// Listen listens on a TCP address of the node, such as one of its loopback interface.
func (n Node) Listen(ctx context.Context, address string) (listener net.Listener, err error) {
	err = netns.Do(filepath.Join(netnsDir, n.cluster.netns(n.name)), func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		return err
	})
	return listener, err
}

// StopKubelet stops the kubelet and keeps the containers running, as an upgrade of a node does.
func (n Node) StopKubelet(ctx context.Context) error {
	return n.cluster.cgroups.stop(ctx, n.daemon("kubelet").cgroup, 10*time.Second)
}

// KillKubelet kills the kubelet with SIGKILL and keeps the containers running.
func (n Node) KillKubelet(ctx context.Context) error {
	return n.cluster.kill(ctx, n.daemon("kubelet"))
}

// StartKubelet starts the kubelet and waits until it reports the node as ready.
func (n Node) StartKubelet(ctx context.Context) error {
	if !n.running() {
		return fmt.Errorf("node %s is stopped; start the node first", n.name)
	}
	since, err := afterHeartbeats(ctx)
	if err != nil {
		return err
	}
	if err := n.startKubelet(ctx); err != nil {
		return err
	}
	return n.awaitReady(ctx, since)
}

// Stop powers the node off: it kills all processes on it, including pods, and removes its network.
// The node's disk stays.
func (n Node) Stop(ctx context.Context) error {
	m := n.cluster.machine
	return errors.Join(
		m.cgroups.kill(ctx, m.cgroup(n.name)),
		m.removeNodeNetwork(ctx, n.name, n.index),
		m.cgroups.remove(ctx, m.cgroup(n.name)),
	)
}

// Start boots a stopped node and waits until its kubelet reports it as ready. The kubelet restarts
// the node's pods later.
func (n Node) Start(ctx context.Context) error {
	if n.running() {
		return fmt.Errorf("node %s is running", n.name)
	}
	return n.restart(ctx)
}

func (n Node) restart(ctx context.Context) error {
	if err := n.boot(ctx); err != nil {
		return err
	}
	since, err := afterHeartbeats(ctx)
	if err != nil {
		return err
	}
	if err := n.startAgents(ctx); err != nil {
		return err
	}
	return n.awaitReady(ctx, since)
}

// State is the state of a node.
type State string

// States of a node.
const (
	Running   State = "running"
	Stopped   State = "stopped"
	NoKubelet State = "no kubelet" // StopKubelet was called, or the kubelet died
	Broken    State = "broken"     // containerd or kube-proxy died
)

// State returns the state, from the node's cgroups and a connection to containerd.
func (n Node) State() State {
	populated := func(name string) bool { return n.cluster.cgroups.populated(n.daemon(name).cgroup) }
	switch {
	case !populated("init"):
		return Stopped
	case !populated("kube-proxy") || n.dialContainerd() != nil:
		return Broken
	case !populated("kubelet"):
		return NoKubelet
	}
	return Running
}

func (n Node) running() bool {
	return n.cluster.cgroups.populated(n.daemon("init").cgroup)
}

// boot creates the node's namespaces and starts the processes that do not need the API server.
func (n Node) boot(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return fmt.Errorf("remove the previous node %s: %w", n.name, err)
	}
	if err := n.prepareDisk(); err != nil {
		return err
	}
	if err := n.cluster.createNodeNetwork(ctx, n.name, n.index); err != nil {
		return err
	}
	if err := n.cluster.cgroups.createForPods(n.cluster.podCgroup(n.name)); err != nil {
		return err
	}
	if err := n.startInit(ctx); err != nil {
		return err
	}
	return n.startContainerd(ctx)
}

// startInit starts the process that holds the node's mount namespace, and mounts the node's
// directories.
func (n Node) startInit(ctx context.Context) error {
	network, err := os.Open(filepath.Join(netnsDir, n.cluster.netns(n.name)))
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer network.Close()
	init := n.daemon("init", n.cluster.bin("pause"))
	// The namespace is passed as a file: the mounts below hide its name, possibly before init has
	// entered.
	init.enter, init.files, init.newMounts = []string{"--net=/proc/self/fd/3"}, []*os.File{network}, true
	if err := n.cluster.start(ctx, init); err != nil {
		return err
	}
	cmd, err := n.Command(ctx, "sh", "-ec", n.mountScript())
	if err != nil {
		return err
	}
	_, err = combined(cmd)
	return err
}

func (n Node) startContainerd(ctx context.Context) error {
	containerd, err := n.entered("containerd", "--config="+n.configFile("containerd.toml"))
	if err != nil {
		return err
	}
	if err := n.cluster.start(ctx, containerd); err != nil {
		return err
	}
	return n.cluster.await(ctx, "containerd of node "+n.name, n.callContainerd, containerd)
}

// callContainerd checks that containerd serves the kubelet. It accepts connections before its
// runtime service is initialized, and a kubelet that starts in between exits.
func (n Node) callContainerd(ctx context.Context) error {
	socket, err := n.containerdSocket()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	defer conn.Close()
	_, err = runtimev1.NewRuntimeServiceClient(conn).Version(ctx, &runtimev1.VersionRequest{})
	return err
}

// dialContainerd checks that containerd runs. Its cgroup does not show that, because it also has
// the shims, which outlive containerd.
func (n Node) dialContainerd() error {
	socket, err := n.containerdSocket()
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("dial containerd: %w", err)
	}
	return conn.Close()
}

// containerdSocket returns a path in /proc, which is short enough for a socket address. The
// cluster's directory may be too long.
func (n Node) containerdSocket() (string, error) {
	pid, err := n.initPID()
	if err != nil {
		return "", err
	}
	return filepath.Join("/proc", strconv.Itoa(pid), "root/run/containerd/containerd.sock"), nil
}

// startAgents starts the kubelet and kube-proxy.
func (n Node) startAgents(ctx context.Context) error {
	if err := n.startKubelet(ctx); err != nil {
		return err
	}
	proxy, err := n.entered("kube-proxy", "--config="+n.configFile("kube-proxy.yaml"))
	if err != nil {
		return err
	}
	return n.cluster.start(ctx, proxy)
}

func (n Node) startKubelet(ctx context.Context) error {
	kubelet, err := n.entered("kubelet", "--config="+n.configFile("kubelet.yaml"), "--kubeconfig="+n.kubeconfig(),
		// Without an address the kubelet looks up its name in DNS for 20 s and then fails to
		// initialise CSINode.
		"--hostname-override="+n.name, "--node-ip="+n.IP())
	if err != nil {
		return err
	}
	if n.cluster.cgroups.populated(kubelet.cgroup) {
		return fmt.Errorf("the kubelet of node %s is running", n.name)
	}
	return n.cluster.start(ctx, kubelet)
}

// daemon returns a process of the node without its namespaces.
func (n Node) daemon(name string, args ...string) daemon {
	return daemon{name: name + "-" + n.name, cgroup: n.cluster.cgroup(n.name, name), args: args}
}

// entered returns a process of the node in the node's namespaces.
func (n Node) entered(name string, flags ...string) (daemon, error) {
	d := n.daemon(name, append([]string{n.cluster.bin(name)}, flags...)...)
	enter, err := n.enter()
	d.enter = enter
	return d, err
}

// enter returns the arguments of nsenter for the node's namespaces.
func (n Node) enter() ([]string, error) {
	pid, err := n.initPID()
	if err != nil {
		return nil, err
	}
	return []string{inMountsOf(pid), inNetns(n.cluster.netns(n.name))}, nil
}

func (n Node) initPID() (int, error) {
	pids := n.cluster.cgroups.processes(n.daemon("init").cgroup)
	if len(pids) == 0 {
		return 0, fmt.Errorf("node %s is stopped", n.name)
	}
	return pids[0], nil
}
