// Package cluster runs a real Kubernetes cluster of several nodes on one Linux machine, for tests
// and for the demo.
//
// A node is a kubelet, containerd and kube-proxy in separate namespaces. The control plane is etcd,
// API server, controller manager and scheduler. Services, cluster DNS, webhooks, RBAC and service
// account tokens work as on any cluster. All state is in one directory, all processes in one cgroup
// and all networks in namespaces named after the directory. Down removes these three. Otherwise a
// cluster changes only one setting of the machine, the limit of inotify instances.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"akri.sh/integration/cluster/binaries"
)

// Config configures a cluster. The zero value is valid.
type Config struct {
	// Dir is the directory of all state. Default: $AKRI_CLUSTER_DIR, or DefaultDir.
	Dir string
	// Nodes are the names of the nodes. Default: those of the running cluster, or node-a and
	// node-b.
	Nodes []string
	// Images are docker-archive tar files to load on each node.
	Images []string
	// Kubelet has additional fields of KubeletConfiguration for all kubelets, as YAML.
	Kubelet string
	// Kubernetes is an earlier version of Kubernetes to run, such as 1.34. Default: the version in
	// tools/kubernetes.
	Kubernetes string
	// Progress is called when a step begins, from several goroutines. It may be nil.
	Progress func(step string)
}

// Cluster is a running cluster: one that Up started, or an existing one of a kubeconfig.
type Cluster struct {
	*machine
	kubeconfig string
	nodes      []Node
	kubelet    string
	progress   func(step string)
}

// machine is what a cluster uses of this machine: its directory, names and control groups. All
// names and paths depend on the directory.
type machine struct {
	dir string
	// prefix starts the name of each network namespace and cgroup. It differs between directories.
	prefix  string
	cgroups cgroups
	// kubernetes is that of Config.
	kubernetes string
}

// ErrExternal is returned by operations that need a cluster on this machine.
var ErrExternal = errors.New("the cluster does not run on this machine")

// FromKubeconfig returns an existing cluster. It has no Nodes, and operations on nodes return
// ErrExternal.
func FromKubeconfig(path string) (*Cluster, error) {
	c := &Cluster{kubeconfig: path}
	if _, err := c.RESTConfig(); err != nil {
		return nil, err
	}
	return c, nil
}

// Ensure returns the existing cluster of $KUBECONFIG, or calls Up if KUBECONFIG is empty or is the
// kubeconfig of the cluster in cfg.Dir.
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

// Open returns the running cluster in dir.
func Open(dir string) (*Cluster, error) {
	m, err := newMachine(dir)
	if err != nil {
		return nil, err
	}
	s, err := m.readState()
	if err != nil {
		return nil, err
	}
	return m.cluster(s, nil), nil
}

// Up starts a cluster and returns when its nodes and its DNS are ready. If one runs in the same
// directory, Up starts its stopped parts and returns it. Up removes the remains of a crashed
// cluster first. If the start fails, only the logs are left.
func Up(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := errors.Join(requireRoot(), checkNodes(cfg.Nodes)); err != nil {
		return nil, err
	}
	if err := raiseInotifyInstances(inotifyInstancesFile, inotifyInstances); err != nil {
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

// create starts a new cluster.
func (m *machine) create(ctx context.Context, cfg Config) (*Cluster, error) {
	names := cfg.Nodes
	if len(names) == 0 {
		names = []string{"node-a", "node-b"}
	}
	s := state{Nodes: names, Kubernetes: cfg.Kubernetes}
	c := m.cluster(s, cfg.Progress)
	c.kubelet = cfg.Kubelet
	if err := m.clean(ctx, "log"); err != nil {
		return nil, fmt.Errorf("remove the previous cluster: %w", err)
	}
	err := c.bringUp(ctx)
	if err == nil {
		err = m.writeState(s)
	}
	if err != nil {
		// The cleanup also runs if the caller's context has ended.
		return nil, errors.Join(err, m.clean(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) bringUp(ctx context.Context) error {
	if err := ensurePrerequisites(ctx, missingPackages, c.step); err != nil {
		return err
	}
	bin, err := binaries.Ensure(ctx, c.step, binaries.OfCluster(c.kubernetes)...)
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

// startMachines starts the control plane and boots all nodes in parallel.
func (c *Cluster) startMachines(ctx context.Context, a *authority) error {
	if err := c.writeSystemImages("", c.path("images")); err != nil {
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

// awaitUsable returns when new pods can start and resolve names.
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

// Down stops the cluster and removes everything that it created, in any state. On an external
// cluster it does nothing.
func (c *Cluster) Down(ctx context.Context) error {
	if c.machine == nil {
		return nil
	}
	return c.down(ctx)
}

// Down stops the cluster in dir, also if it crashed or its start failed.
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

// Nodes returns the nodes on this machine, in the order of Config.Nodes.
func (c *Cluster) Nodes() []Node { return slices.Clone(c.nodes) }

// WriteLogs writes the last lines of the logs of the control plane and the nodes. An existing
// cluster of a kubeconfig has none on this machine.
func (c *Cluster) WriteLogs(w io.Writer, lines int) error {
	if c.machine == nil {
		return nil
	}
	logs, err := filepath.Glob(c.log("*"))
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	for _, log := range logs {
		fmt.Fprintf(w, "\nthe end of %s\n%s\n", filepath.Base(log), tail(log, lines))
	}
	return nil
}

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

func (c *Cluster) step(step string) {
	if c.progress != nil {
		c.progress(step)
	}
}
