package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is one node of a cluster that this machine runs: a network namespace and a mount namespace with a kubelet, containerd and
// kube-proxy. /dev and /sys are the machine's, so that a device that is plugged in shows on every node; /var/lib, /var/log and /run
// are the node's own, and the machine sees them under Path.
type Node struct {
	cluster *Cluster
	name    string
	index   int
}

// Name is the node's name in Kubernetes.
func (n Node) Name() string { return n.name }

// IP is the node's address. Only the cluster's network namespaces reach it.
func (n Node) IP() string { return nodeIP(n.index) }

// Path is where the machine sees a path of the node that is inside /var/lib, /var/log or /run.
func (n Node) Path(path string) string { return n.cluster.node(n.name, "root", path) }

// KubeletDir is the machine's path of the node's /var/lib/kubelet.
func (n Node) KubeletDir() string { return n.Path("/var/lib/kubelet") }

// AkriDir is the machine's path of the node's /var/lib/akri.
func (n Node) AkriDir() string { return n.Path("/var/lib/akri") }

// RunDir is the machine's path of the node's /run/akri.
func (n Node) RunDir() string { return n.Path("/run/akri") }

// Command prepares a program to run on the node: in its namespaces, with the cluster's programs in PATH, and gone when the node is
// stopped. It fails when the node is stopped already.
func (n Node) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	enter, err := n.enter()
	if err != nil {
		return nil, err
	}
	return n.cluster.entering(ctx, n.cluster.cgroup(n.name, "commands"), enter, name, args)
}

// StopKubelet ends the kubelet and leaves containers running, as an upgrade of a node does.
func (n Node) StopKubelet(ctx context.Context) error {
	return n.cluster.cgroups.stop(ctx, n.daemon("kubelet").cgroup, 10*time.Second)
}

// StartKubelet starts the kubelet and waits until it has reported the node as ready.
func (n Node) StartKubelet(ctx context.Context) error {
	if !n.running() {
		return fmt.Errorf("node %s is stopped: start the node", n.name)
	}
	since := time.Now()
	if err := n.startKubelet(ctx); err != nil {
		return err
	}
	return n.awaitReady(ctx, since)
}

// Stop takes the power from the node: everything on it ends at once, pods included, and its network is gone. Its disk stays.
func (n Node) Stop(ctx context.Context) error {
	m := n.cluster.machine
	return errors.Join(
		m.cgroups.kill(ctx, m.cgroup(n.name)),
		m.removeNodeNetwork(ctx, n.name, n.index),
		m.cgroups.remove(ctx, m.cgroup(n.name)),
	)
}

// Start boots a stopped node and waits until its kubelet has reported it as ready. The pods that Kubernetes still has on it come
// back later, each in its own time.
func (n Node) Start(ctx context.Context) error {
	if n.running() {
		return fmt.Errorf("node %s is running", n.name)
	}
	return n.restart(ctx)
}

func (n Node) restart(ctx context.Context) error {
	since := time.Now()
	if err := n.boot(ctx); err != nil {
		return err
	}
	if err := n.startAgents(ctx); err != nil {
		return err
	}
	return n.awaitReady(ctx, since)
}

// State is what a node is up to.
type State string

// States of a node.
const (
	Running   State = "running"
	Stopped   State = "stopped"
	NoKubelet State = "no kubelet" // StopKubelet was called, or it died
	Broken    State = "broken"     // containerd or kube-proxy died
)

// State asks the kernel, and containerd.
func (n Node) State() State {
	populated := func(program string) bool { return n.cluster.cgroups.populated(n.daemon(program).cgroup) }
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

// boot creates the node's namespaces and starts what does not need the API server.
func (n Node) boot(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return fmt.Errorf("clear what is left of node %s: %w", n.name, err)
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

// startInit starts the process that holds the node's mount namespace, and mounts what the node has of its own.
func (n Node) startInit(ctx context.Context) error {
	network, err := os.Open(filepath.Join(netnsDir, n.cluster.netns(n.name)))
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer network.Close()
	init := n.daemon("init", n.cluster.bin("pause"))
	// Not by its name, which the mounts below hide: on a busy machine they come before init has entered.
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
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = wait(ctx, 20*time.Millisecond, func() error {
		if err := n.cluster.alive(containerd); err != nil {
			cancel()
			return err
		}
		return n.dialContainerd()
	})
	if err != nil {
		return fmt.Errorf("wait for containerd of node %s: %w", n.name, err)
	}
	return nil
}

// dialContainerd is how to tell whether it lives: the cgroup also holds the shims, which outlive it.
func (n Node) dialContainerd() error {
	pid, err := n.initPID()
	if err != nil {
		return err
	}
	// By way of a process on the node, because the address of a socket must be short and the cluster's folder may not be.
	conn, err := net.Dial("unix", filepath.Join("/proc", strconv.Itoa(pid), "root/run/containerd/containerd.sock"))
	if err != nil {
		return fmt.Errorf("dial containerd: %w", err)
	}
	return conn.Close()
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
		// Without an address the kubelet asks DNS for its own name, waits 20 s, and then fails to initialise CSINode.
		"--hostname-override="+n.name, "--node-ip="+n.IP())
	if err != nil {
		return err
	}
	if n.cluster.cgroups.populated(kubelet.cgroup) {
		return fmt.Errorf("the kubelet of node %s is running", n.name)
	}
	return n.cluster.start(ctx, kubelet)
}

// daemon is a process of the node that runs in namespaces which are not known yet.
func (n Node) daemon(program string, args ...string) daemon {
	return daemon{name: program + "-" + n.name, cgroup: n.cluster.cgroup(n.name, program), args: args}
}

func (n Node) entered(program string, flags ...string) (daemon, error) {
	d := n.daemon(program, append([]string{n.cluster.bin(program)}, flags...)...)
	enter, err := n.enter()
	d.enter = enter
	return d, err
}

// enter returns arguments of nsenter.
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

// awaitReady waits for a heartbeat at or after since: what the API server says of a node that was stopped is old for 40 s.
func (n Node) awaitReady(ctx context.Context, since time.Time) error {
	client, err := n.cluster.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	err = wait(ctx, 100*time.Millisecond, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return readyAfter(node, since)
	})
	if err != nil {
		return fmt.Errorf("wait for node %s: %w", n.name, err)
	}
	return nil
}

func readyAfter(node *corev1.Node, since time.Time) error {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return errors.New("the kubelet has not reported yet")
	}
	ready := node.Status.Conditions[i]
	switch {
	case ready.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)):
		return fmt.Errorf("the kubelet's last report is of %s", ready.LastHeartbeatTime.Format(time.TimeOnly))
	case ready.Status != corev1.ConditionTrue:
		return fmt.Errorf("the node is not ready: %s", ready.Message)
	}
	return nil
}
