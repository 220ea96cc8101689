package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

// state is written when the cluster is up. A directory without it has the remains of a crash.
type state struct {
	Nodes      []string `json:"nodes"`
	Kubernetes string   `json:"kubernetes,omitempty"`
}

func newMachine(dir string) (*machine, error) {
	dir, err := clusterDir(dir)
	if err != nil {
		return nil, err
	}
	groups, err := findCgroups()
	if err != nil {
		return nil, err
	}
	return &machine{dir: dir, prefix: prefixOf(dir), cgroups: groups}, nil
}

func (m *machine) cluster(s state, progress func(string)) *Cluster {
	m.kubernetes = s.Kubernetes
	c := &Cluster{machine: m, kubeconfig: m.path("kubeconfig"), progress: progress}
	for i, name := range s.Nodes {
		c.nodes = append(c.nodes, Node{cluster: c, name: name, index: i})
	}
	return c
}

func (m *machine) readState() (s state, err error) {
	content, err := os.ReadFile(m.path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("no cluster runs in %s", m.dir)
	}
	if err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	return s, nil
}

// writeState is the last step of Up. The rename is atomic.
func (m *machine) writeState(s state) error {
	content, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := writeFile(m.path("state.json.partial"), content); err != nil {
		return err
	}
	if err := os.Rename(m.path("state.json.partial"), m.path("state.json")); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// lock waits until no other process changes the cluster. The kernel releases the lock when the
// process ends.
func (m *machine) lock() (func(), error) {
	for {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return nil, fmt.Errorf("create cluster directory: %w", err)
		}
		file, err := os.OpenFile(m.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed between the two calls
		}
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", m.dir, err)
		}
		if sameFile(file, m.path("lock")) {
			return func() { _ = file.Close() }, nil
		}
		_ = file.Close() // the previous holder removed the file with the cluster
	}
}

func sameFile(file *os.File, path string) bool {
	openInfo, openErr := file.Stat()
	pathInfo, pathErr := os.Stat(path)
	return openErr == nil && pathErr == nil && os.SameFile(openInfo, pathInfo)
}

// revive starts the stopped parts of the cluster in the directory and returns it, or returns nil if
// its API server does not run.
func (m *machine) revive(ctx context.Context, cfg Config) (*Cluster, error) {
	s, err := m.readState()
	if err != nil {
		return nil, nil //nolint:nilerr // no readable state means no cluster
	}
	c := m.cluster(s, cfg.Progress)
	if err := c.awaitAPI(ctx); err != nil {
		return nil, ctx.Err()
	}
	if len(cfg.Nodes) > 0 && !slices.Equal(cfg.Nodes, s.Nodes) {
		return nil, fmt.Errorf("the cluster in %s runs with the nodes %q, not %q; take it down first", m.dir, s.Nodes, cfg.Nodes)
	}
	if cfg.Kubernetes != s.Kubernetes {
		return nil, fmt.Errorf("the cluster in %s runs Kubernetes %q, not %q; take it down first", m.dir, s.Kubernetes, cfg.Kubernetes)
	}
	if _, err := c.RestartExited(ctx); err != nil {
		return nil, err
	}
	for _, node := range c.nodes {
		if err := node.revive(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (n Node) revive(ctx context.Context) error {
	switch n.State() {
	case Running:
		return nil
	case NoKubelet:
		n.cluster.step("starting the kubelet of " + n.name)
		return n.StartKubelet(ctx)
	default:
		n.cluster.step("starting " + n.name)
		return n.restart(ctx)
	}
}

func (m *machine) down(ctx context.Context) error {
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.clean(ctx, "log", "lock"); err != nil {
		return err
	}
	_ = os.Remove(m.dir) // stays if it has files of the user
	return nil
}

// clusterFiles are the files that a cluster creates in its directory, except logs and lock.
var clusterFiles = []string{
	"state.json", "state.json.partial", "kubeconfig", "kube-controller-manager.kubeconfig", "kube-scheduler.kubeconfig",
	"kube-proxy.kubeconfig", "dns.yaml", "pki", "etcd", "etcd-snapshot", "images", "nodes", "bin",
}

// clean kills the cluster's processes and removes its namespaces, its files and the additional
// files. It finds them by name in the kernel's lists, not in recorded state.
func (m *machine) clean(ctx context.Context, files ...string) error {
	if err := m.cgroups.kill(ctx, m.cgroup()); err != nil {
		return err
	}
	err := errors.Join(m.removeNetworks(ctx), m.cgroups.remove(ctx, m.cgroup()))
	for _, name := range slices.Concat(clusterFiles, files) {
		err = errors.Join(err, os.RemoveAll(m.path(name)))
	}
	return err
}

// prepareDir creates the directories, and a link to the binaries that keeps command lines short.
func (m *machine) prepareDir(bin string) error {
	for _, name := range []string{"log", "nodes", "images"} {
		if err := os.MkdirAll(m.path(name), 0o755); err != nil {
			return fmt.Errorf("create directory: %w", err)
		}
	}
	for _, owned := range nodeDirs {
		if bin == owned || strings.HasPrefix(bin, owned+"/") {
			return fmt.Errorf("AKRI_CACHE must not be inside %s, which is separate on each node", owned)
		}
	}
	if err := os.Symlink(bin, m.path("bin")); err != nil {
		return fmt.Errorf("link binaries: %w", err)
	}
	return nil
}
