package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Addresses inside the cluster's network namespaces. They are private, so all clusters use the
// same.
const (
	controlPlaneIP = "10.77.0.1"
	serviceCIDR    = "10.96.0.0/16"
	podCIDR        = "10.244.0.0/16"
	apiServiceIP   = "10.96.0.1"
	dnsServiceIP   = "10.96.0.10"
	apiPort        = 6443
	firstNodeIndex = 11
	maxNodes       = 200
)

// DefaultDir is the cluster directory if neither Config.Dir nor AKRI_CLUSTER_DIR is set.
const DefaultDir = "/tmp/akri-cluster"

// clusterDir returns the directory of a cluster, absolute and without symbolic links. It returns an
// error for directories that nodes mount over.
func clusterDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv("AKRI_CLUSTER_DIR")
	}
	if dir == "" {
		dir = DefaultDir
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolve cluster directory: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if !plainPath.MatchString(dir) {
		return "", fmt.Errorf("cluster directory %q must have only letters, digits and ./_-, and at most 60 characters", dir)
	}
	for _, owned := range nodeDirs {
		if dir == owned || strings.HasPrefix(dir, owned+"/") {
			return "", fmt.Errorf("cluster directory %q must not be inside %s, which is separate on each node", dir, owned)
		}
	}
	return dir, nil
}

func prefixOf(dir string) string {
	if dir == DefaultDir {
		return "akri"
	}
	digest := sha256.Sum256([]byte(dir))
	return "akri" + hex.EncodeToString(digest[:3])
}

func (m *machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.dir}, parts...)...)
}

func (m *machine) log(daemon string) string { return m.path("log", daemon+".log") }

func (m *machine) node(name string, parts ...string) string {
	return m.path(append([]string{"nodes", name}, parts...)...)
}

// netns is the name of the network namespace of a node, or of the control plane.
func (m *machine) netns(scope string) string { return m.prefix + "-" + scope }

func (m *machine) cgroup(parts ...string) string {
	return filepath.Join(append([]string{m.prefix}, parts...)...)
}

// podCgroup is the cgroup root of a node's kubelet. Two kubelets with the same root delete each
// other's pods.
func (m *machine) podCgroup(node string) string { return m.cgroup(node, "pods") }

func nodeIP(index int) string { return "10.77.0." + strconv.Itoa(firstNodeIndex+index) }

func nodePodCIDR(index int) string { return "10.244." + strconv.Itoa(firstNodeIndex+index) + ".0/24" }

func apiURL(host string, port int) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
}

var plainPath = regexp.MustCompile(`^[A-Za-z0-9./_-]{2,60}$`)

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

// checkNodes validates the names of nodes and reports all problems.
func checkNodes(names []string) error {
	if len(names) > maxNodes {
		return fmt.Errorf("%d nodes: must be at most %d", len(names), maxNodes)
	}
	var errs []error
	seen := map[string]bool{controlPlane: true}
	for _, name := range names {
		if !nodeName.MatchString(name) {
			errs = append(errs, fmt.Errorf("node name %q must be at most 40 lower case letters, digits and dashes", name))
		} else if seen[name] {
			errs = append(errs, fmt.Errorf("node name %q is taken", name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}
