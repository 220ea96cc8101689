package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// The control plane's namespace is also the cluster's switch and router: a bridge connects the
// nodes, and one route per node forwards packets between pods.

const netnsDir = "/run/netns"

func (m *machine) createControlPlaneNetwork(ctx context.Context) error {
	ns := m.netns(controlPlane)
	err := m.ip(ctx,
		"netns add "+ns,
		"-n "+ns+" link set lo up",
		"-n "+ns+" link add br0 address "+mac(0)+" type bridge",
		"-n "+ns+" addr add "+controlPlaneIP+"/24 dev br0",
		"-n "+ns+" link set br0 up",
		// kube-proxy redirects packets for a Service after routing, so the route must exist.
		"-n "+ns+" route add "+serviceCIDR+" dev br0",
	)
	if err != nil {
		return err
	}
	// ICMP redirects would make nodes bypass the router, and they have no other route.
	return m.run(ctx, "nsenter", inNetns(ns), "sh", "-ec", `cd /proc/sys/net/ipv4
		echo 1 > ip_forward; echo 0 > conf/all/send_redirects; echo 0 > conf/br0/send_redirects`)
}

func (m *machine) createNodeNetwork(ctx context.Context, name string, index int) error {
	router, ns, link := m.netns(controlPlane), m.netns(name), linkName(index)
	return m.ip(ctx,
		"netns add "+ns,
		"-n "+ns+" link set lo up",
		"-n "+router+" link add "+link+" type veth peer name eth0 address "+mac(firstNodeIndex+index)+" netns "+ns,
		"-n "+router+" link set "+link+" master br0 up",
		"-n "+ns+" addr add "+nodeIP(index)+"/24 dev eth0",
		"-n "+ns+" link set eth0 up",
		"-n "+ns+" route add default via "+controlPlaneIP,
		"-n "+router+" route replace "+nodePodCIDR(index)+" via "+nodeIP(index),
	)
}

// createTap creates the link of a member and the route to its Pods.
func (m *machine) createTap(ctx context.Context, index int) error {
	router, link := m.netns(controlPlane), linkName(index)
	return m.ip(ctx,
		"-n "+router+" tuntap add dev "+link+" mode tap",
		"-n "+router+" link set "+link+" master br0 up",
		"-n "+router+" route replace "+nodePodCIDR(index)+" via "+nodeIP(index),
	)
}

// removeNodeNetwork deletes the link and the namespace. The kernel removes a namespace slowly, and
// the link's name would stay in use until then.
func (m *machine) removeNodeNetwork(ctx context.Context, name string, index int) error {
	if !netnsExists(m.netns(name)) {
		return nil
	}
	_ = m.ip(ctx, "-n "+m.netns(controlPlane)+" link del "+linkName(index)) // may be gone after a crash
	return m.ip(ctx, "netns del "+m.netns(name))
}

// Link connects a network namespace, named as for ip(8), to the nodes' network as its eth0 and
// returns its address, for simulated devices. The number, 0 to 42, must be unique. The link is
// removed with the namespace.
func (c *Cluster) Link(ctx context.Context, namespace string, number int) (string, error) {
	if c.machine == nil {
		return "", ErrExternal
	}
	index := firstNodeIndex + maxNodes + number
	if number < 0 || index > 253 {
		return "", fmt.Errorf("number %d must be 0 to %d", number, 253-firstNodeIndex-maxNodes)
	}
	router, link, address := c.netns(controlPlane), "far"+strconv.Itoa(number), nodeIP(maxNodes+number)
	_ = c.ip(ctx, "-n "+router+" link del "+link) // of a deleted namespace, which the kernel removes slowly
	return address, c.ip(ctx,
		"-n "+router+" link add "+link+" type veth peer name eth0 address "+mac(index)+" netns "+namespace,
		"-n "+router+" link set "+link+" master br0 up",
	)
}

// Gateway is the router of the nodes' network, by which linked namespaces reach the Pods.
func (c *Cluster) Gateway() string { return controlPlaneIP }

// removeNetworks deletes all namespaces of the cluster. It runs no command in the cluster's cgroup,
// which was killed.
func (m *machine) removeNetworks(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(netnsDir, m.netns("*")))
	if err != nil {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	var errs []error
	for _, path := range paths {
		_, err := combined(exec.CommandContext(ctx, "ip", "netns", "del", filepath.Base(path)))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (m *machine) ip(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		if err := m.run(ctx, "ip", strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// mac is a constant address. By default a bridge changes its address when a node is added or
// removed, and the ARP caches of all other nodes are wrong for half a minute.
func mac(index int) string { return fmt.Sprintf("02:00:0a:4d:00:%02x", index) }

func linkName(index int) string { return "node" + strconv.Itoa(index) }

func netnsExists(name string) bool {
	_, err := os.Stat(filepath.Join(netnsDir, name))
	return !errors.Is(err, fs.ErrNotExist)
}
