// Package cluster runs a real Kubernetes cluster of several nodes on one Linux machine, for tests and for the demo.
//
// Each node is the real kubelet, containerd and kube-proxy in namespaces of its own; the control plane is the real etcd, API server,
// controller manager and scheduler. Services, cluster DNS, webhooks, RBAC and service account tokens work as on any cluster. All
// state lies in one folder, all processes in one cgroup, all networks in namespaces named after the folder: Down removes the three,
// and nothing else on the machine was touched.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"akri.sh/integration/cluster/binaries"
)

// Config says what cluster to run. The zero value is a good one.
type Config struct {
	// Dir holds all state. Default: $AKRI_CLUSTER_DIR, or DefaultDir.
	Dir string
	// Nodes are the names of the nodes. Default: those that a running cluster has, or node-a and node-b.
	Nodes []string
	// Images are docker-archive tar files to load on each node.
	Images []string
	// Kubelet is what the configuration of each kubelet says besides: fields of KubeletConfiguration, as YAML.
	Kubelet string
	// Progress is told each step as it begins, from several goroutines. It may be nil.
	Progress func(step string)
}

// Cluster is a running cluster: one that Up started, or an existing one that a kubeconfig names.
type Cluster struct {
	*machine
	kubeconfig string
	nodes      []Node
	kubelet    string
	progress   func(step string)
}

// machine is a cluster's share of this machine: its folder, its names and its control groups.
type machine struct {
	layout
	cgroups cgroups
}

// ErrExternal is returned where a cluster would have to run on this machine and does not.
var ErrExternal = errors.New("the cluster does not run on this machine")

// FromKubeconfig wraps an existing cluster. It has no Nodes, and what only works on nodes of this machine returns ErrExternal.
func FromKubeconfig(path string) (*Cluster, error) {
	c := &Cluster{kubeconfig: path}
	if _, err := c.RESTConfig(); err != nil {
		return nil, err
	}
	return c, nil
}

// Ensure returns the existing cluster that KUBECONFIG names, and otherwise what Up returns. A KUBECONFIG that leads to the cluster
// in cfg.Dir itself, as one sets it to play with the demo, does not make that an existing one.
func Ensure(ctx context.Context, cfg Config) (*Cluster, error) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return Up(ctx, cfg)
	}
	m, err := newMachine(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if path == m.path("kubeconfig") {
		return Up(ctx, cfg)
	}
	return FromKubeconfig(path)
}

// Open returns the cluster that was started in dir.
func Open(dir string) (*Cluster, error) {
	m, err := newMachine(dir)
	if err != nil {
		return nil, err
	}
	names, err := m.readState()
	if err != nil {
		return nil, err
	}
	return m.cluster(names, nil), nil
}

// Up starts a cluster and returns when its nodes are ready and its DNS answers. A cluster that runs already in the same folder is
// returned, with nodes that were stopped started again; what is left of a crashed one is removed first. A cluster that fails to
// start leaves only its logs.
func Up(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := errors.Join(requireRoot(), checkNodes(cfg.Nodes)); err != nil {
		return nil, err
	}
	m, err := newMachine(cfg.Dir)
	if err != nil {
		return nil, err
	}
	unlock, err := m.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := m.revive(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if c, err = m.create(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return c, c.loadImages(ctx, cfg.Images)
}

// create starts a cluster from nothing.
func (m *machine) create(ctx context.Context, cfg Config) (*Cluster, error) {
	names := cfg.Nodes
	if len(names) == 0 {
		names = []string{"node-a", "node-b"}
	}
	c := m.cluster(names, cfg.Progress)
	c.kubelet = cfg.Kubelet
	if err := m.clean(ctx, "log"); err != nil {
		return nil, fmt.Errorf("remove what a cluster left behind: %w", err)
	}
	err := c.bringUp(ctx)
	if err == nil {
		err = m.writeState(names)
	}
	if err != nil {
		// The caller's context may be what ended.
		return nil, errors.Join(err, m.clean(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) bringUp(ctx context.Context) error {
	if err := ensurePrerequisites(ctx, c.step); err != nil {
		return err
	}
	bin, err := binaries.Ensure(ctx, c.step)
	if err != nil {
		return err
	}
	if err := c.prepareDir(bin); err != nil {
		return err
	}
	authority, err := newAuthority(c.path("pki"))
	if err != nil {
		return err
	}
	if err := c.startMachines(ctx, authority); err != nil {
		return err
	}
	c.step("starting the kubelets")
	if err := c.startAgents(ctx); err != nil {
		return err
	}
	return c.awaitUsable(ctx)
}

// startMachines starts the control plane and boots the nodes side by side.
func (c *Cluster) startMachines(ctx context.Context, a *authority) error {
	if err := writeSystemImages(c.path("bin"), c.path("images")); err != nil {
		return err
	}
	c.step("starting the control plane and the nodes")
	if err := c.createControlPlaneNetwork(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(ctx, a) })
	for _, node := range c.nodes {
		group.Go(func() error {
			if err := node.issue(a); err != nil {
				return err
			}
			if err := node.boot(ctx); err != nil {
				return err
			}
			return node.loadImages(ctx, systemImages(c.path("images")))
		})
	}
	return group.Wait()
}

func (c *Cluster) startAgents(ctx context.Context) error {
	for _, node := range c.nodes {
		if err := node.startAgents(ctx); err != nil {
			return err
		}
	}
	if err := c.start(ctx, c.controlPlaneProxy()); err != nil {
		return err
	}
	return c.applyDNS(ctx)
}

// awaitUsable returns when a pod that is created now would start and find names.
func (c *Cluster) awaitUsable(ctx context.Context) error {
	c.step("waiting for nodes and cluster DNS")
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		group.Go(func() error { return node.awaitReady(ctx, time.Time{}) })
	}
	group.Go(func() error { return c.awaitDNS(ctx) })
	group.Go(func() error { return c.awaitServiceAccount(ctx) })
	return group.Wait()
}

// Down ends the cluster and removes all that it left, whatever state it is in. On an existing cluster that this machine does not
// run it does nothing.
func (c *Cluster) Down(ctx context.Context) error {
	if c.machine == nil {
		return nil
	}
	return c.down(ctx)
}

// Down ends the cluster in dir, also one that never came up or crashed.
func Down(ctx context.Context, dir string) error {
	if err := requireRoot(); err != nil {
		return err
	}
	m, err := newMachine(dir)
	if err != nil {
		return err
	}
	return m.down(ctx)
}

// Kubeconfig is the path of a kubeconfig with all rights. It works in the machine's own network namespace.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// RESTConfig returns a client configuration with all rights, and without client-go's limit of 5 requests a second.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	return config, nil
}

// Nodes lists the nodes that this machine runs, in the order of Config.Nodes.
func (c *Cluster) Nodes() []Node { return slices.Clone(c.nodes) }

// Node returns the node of that name.
func (c *Cluster) Node(name string) (Node, error) {
	if c.machine == nil {
		return Node{}, fmt.Errorf("find node %q: %w", name, ErrExternal)
	}
	for _, node := range c.nodes {
		if node.name == name {
			return node, nil
		}
	}
	return Node{}, fmt.Errorf("the cluster has no node %q", name)
}

// Kubectl prepares a kubectl with all rights.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return c.tool(ctx, "kubectl", args)
}

// Helm prepares a helm with all rights.
func (c *Cluster) Helm(ctx context.Context, args ...string) *exec.Cmd {
	return c.tool(ctx, "helm", args)
}

// tool prefers the program that this project builds. On an existing cluster nobody may have built it: then the one in PATH will do.
func (c *Cluster) tool(ctx context.Context, name string, args []string) *exec.Cmd {
	program, err := binaries.Path(name)
	if err != nil {
		program = name
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	return cmd
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return client, nil
}

func (c *Cluster) step(step string) {
	if c.progress != nil {
		c.progress(step)
	}
}
