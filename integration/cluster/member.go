package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster/binaries"
)

// MemberDir is the directory in which a member must have the files of Member.Dir.
const MemberDir = "/node"

// maxMembers is the number of members that a cluster can have.
const maxMembers = 100

// Member is what a machine with a kernel of its own needs to join the cluster as a node.
type Member struct {
	// Name is the node's name in Kubernetes.
	Name string
	// IP is the machine's address in the nodes' network, with a prefix of 24 bits. Gateway is its
	// default route.
	IP, Gateway string
	// Tap is a tap device in the network namespace of Neighbour: the other end of the machine's
	// network interface, which has the address MAC.
	Tap, MAC string
	// KubeletDir is the kubelet's directory on the machine.
	KubeletDir string
	// Dir has the machine's files: programs in bin, their configuration in config, and images in
	// images.
	Dir string

	cluster *Cluster
}

// MemberOptions describe a machine that joins a cluster.
type MemberOptions struct {
	// Name of the node in Kubernetes.
	Name string
	// Number must be unique, 0 to 99.
	Number int
	// Architecture of the machine as Go names it. Default: that of this machine.
	Architecture string
	// KubeletDir is the kubelet's directory on the machine. Default: that of the kubelet.
	KubeletDir string
	// Images are docker-archive tar files for its Pods.
	Images []string
}

// memberPrograms are what a machine runs as a node.
var memberPrograms = []string{"kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr"}

// Join prepares the cluster for a machine that joins it as a node. For another architecture, the
// first call compiles the programs of the node, which takes minutes. What Join creates is removed
// with the cluster.
func (c *Cluster) Join(ctx context.Context, options MemberOptions) (*Member, error) {
	if c.machine == nil {
		return nil, fmt.Errorf("join node %q: %w", options.Name, ErrExternal)
	}
	if err := checkNodes([]string{options.Name}); err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.node(options.Name)); err == nil {
		return nil, fmt.Errorf("node name %q is taken", options.Name)
	}
	index := maxNodes - 1 - options.Number
	if options.Number < 0 || options.Number >= maxMembers || index < len(c.nodes) {
		return nil, fmt.Errorf("number %d must be 0 to %d", options.Number, min(maxMembers, maxNodes-len(c.nodes))-1)
	}

	if err := c.ensureMemberPrograms(ctx, options.Architecture); err != nil {
		return nil, err
	}
	node := Node{cluster: c, name: options.Name, index: index}
	if err := node.writeMember(options); err != nil {
		return nil, fmt.Errorf("prepare node %s: %w", options.Name, err)
	}
	if err := c.createTap(ctx, index); err != nil {
		return nil, err
	}
	return &Member{
		Name: options.Name, IP: node.IP(), Gateway: controlPlaneIP, Tap: linkName(index), MAC: mac(firstNodeIndex + index),
		KubeletDir: cmp.Or(options.KubeletDir, "/var/lib/kubelet"), Dir: c.node(options.Name), cluster: c,
	}, nil
}

// ensureMemberPrograms builds the programs of a node. Those of this machine's architecture exist.
func (c *Cluster) ensureMemberPrograms(ctx context.Context, architecture string) error {
	var names []string
	for _, name := range append([]string{"pause", "coredns"}, memberPrograms...) {
		names = append(names, filepath.Base(c.binFor(architecture, name)))
	}
	_, err := binaries.Ensure(ctx, c.step, names...)
	return err
}

// writeMember writes the files of a member.
func (n Node) writeMember(options MemberOptions) error {
	authority, err := openAuthority(n.cluster.path("pki"))
	if err != nil {
		return err
	}
	if err := n.issue(authority); err != nil {
		return err
	}
	config := filepath.Join(MemberDir, "config")
	err = n.render(daemonFiles{
		config: config, pki: filepath.Join(config, "pki"), proxyKubeconfig: filepath.Join(config, "kube-proxy.kubeconfig"),
		cniPlugins: "/usr/lib/cni", cgroupDriver: "systemd",
	})
	if err != nil {
		return err
	}

	files := map[string]string{"config/kube-proxy.kubeconfig": n.cluster.path("kube-proxy.kubeconfig")}
	for _, name := range []string{"ca.crt", "kubelet-" + n.name + ".crt", "kubelet-" + n.name + ".key"} {
		files[filepath.Join("config/pki", name)] = n.cluster.path("pki", name)
	}
	for _, name := range memberPrograms {
		files[filepath.Join("bin", name)] = n.cluster.binFor(options.Architecture, name)
	}
	for _, image := range options.Images {
		files[filepath.Join("images", filepath.Base(image))] = image
	}
	for file, source := range files {
		if err := copyFile(source, n.cluster.node(n.name, file)); err != nil {
			return err
		}
	}

	dir := n.cluster.node(n.name, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	return n.cluster.writeSystemImages(options.Architecture, dir)
}

// copyFile copies a file and its mode.
func copyFile(source, target string) error {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}

	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("copy file: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	return nil
}

// AwaitReady waits until the kubelet of the machine reports the node as ready.
func (m *Member) AwaitReady(ctx context.Context) error {
	client, err := m.cluster.client()
	if err != nil {
		return err
	}
	err = Wait(ctx, 50*time.Millisecond, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return readyAfter(node, time.Time{})
	})
	if err != nil {
		return fmt.Errorf("wait for node %s: %w", m.Name, err)
	}
	return nil
}
