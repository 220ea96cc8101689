package cluster

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// nodeDirs are the directories that are separate for each node. They hold all state of its daemons
// and pods.
var nodeDirs = []string{"/var/lib", "/var/log", "/run"}

// kernelSettings are the settings that a kubelet changes for the whole machine. Nodes mount files
// that already have these values over them, so that the kubelet does not change the machine's.
var kernelSettings = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(templateFiles, "templates/*"))

// prepareDisk writes the node's configuration, creates missing directories and, as any boot does,
// empties /run.
func (n Node) prepareDisk() error {
	if err := os.RemoveAll(n.Path("/run")); err != nil {
		return fmt.Errorf("empty the node's /run: %w", err)
	}
	for _, dir := range []string{
		"/run/netns", "/run/udev", "/run/cdi", "/run/lock",
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni",
		"/var/log/pods", "/var/log/containers",
	} {
		if err := os.MkdirAll(n.Path(dir), 0o755); err != nil {
			return fmt.Errorf("create directory of node: %w", err)
		}
	}
	for path, value := range kernelSettings {
		if err := writeFile(n.settingFile(path), []byte(value+"\n")); err != nil {
			return err
		}
	}
	return n.writeConfig()
}

func (n Node) writeConfig() error {
	plugins, err := cniPlugins()
	if err != nil {
		return err
	}
	return n.render(daemonFiles{
		config: n.configFile(""), pki: n.cluster.path("pki"), proxyKubeconfig: n.cluster.path("kube-proxy.kubeconfig"),
		cniPlugins: plugins, cgroupDriver: "cgroupfs", podCgroup: n.cluster.podCgroup(n.name),
	})
}

// daemonFiles is where the daemons of a node find their files, and who manages its cgroups.
type daemonFiles struct {
	config, pki, proxyKubeconfig, cniPlugins string
	// cgroupDriver is that of the kubelet and of containerd. podCgroup is the kubelet's root.
	cgroupDriver, podCgroup string
}

// render writes the configuration of the node's daemons.
func (n Node) render(l daemonFiles) error {
	values := map[string]string{
		"Name": n.name, "PodCIDR": nodePodCIDR(n.index), "ClusterCIDR": podCIDR, "DNS": dnsServiceIP,
		"CgroupDriver": l.cgroupDriver, "PodCgroup": l.podCgroup, "PKI": l.pki, "PauseImage": pauseImage,
		"CNIPlugins": l.cniPlugins, "ConfigDir": l.config, "ProxyKubeconfig": l.proxyKubeconfig,
		"KubeletFields": n.cluster.kubelet,
	}

	for file, source := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml", "kube-proxy.yaml": "kube-proxy.yaml",
		"cni/10-pod.conflist": "cni.conflist",
	} {
		content, err := render(source, values)
		if err != nil {
			return err
		}
		// kube-proxy ends when its file is written. That of the control plane has the file of a
		// node.
		if existing, err := os.ReadFile(n.configFile(file)); err == nil && bytes.Equal(existing, content) {
			continue
		}
		if err := writeFile(n.configFile(file), content); err != nil {
			return err
		}
	}
	return nil
}

// issue creates the certificates of the kubelet: as client of the API server and as server of logs.
func (n Node) issue(a *authority) error {
	if err := os.MkdirAll(n.configFile(""), 0o755); err != nil {
		return fmt.Errorf("create directory of node: %w", err)
	}
	server := identity{name: "kubelet-" + n.name, hosts: []string{n.name, n.IP()}}
	if err := a.issue(server.name, server); err != nil {
		return err
	}
	user := identity{name: "system:node:" + n.name, groups: []string{"system:nodes"}}
	return a.kubeconfig(n.kubeconfig(), apiURL(controlPlaneIP, apiPort), user)
}

func (n Node) configFile(name string) string { return n.cluster.node(n.name, "config", name) }

func (n Node) kubeconfig() string { return n.configFile("kubelet.kubeconfig") }

func (n Node) settingFile(path string) string { return n.cluster.node(n.name, "settings", path) }

// mountScript is the script for the node's new mount namespace. Its mounts do not reach the
// machine.
func (n Node) mountScript() string {
	lines := []string{
		"mount --make-rprivate /",
		// Copied mounts would keep deleted network namespaces, of this and of other clusters.
		"umount --recursive --lazy /run/netns 2>/dev/null || true",
		// The node uses the machine's udev database.
		"if [ -d /run/udev ]; then mount --bind /run/udev " + n.Path("/run/udev") + "; fi",
	}
	for _, dir := range nodeDirs {
		lines = append(lines, "mount --rbind "+n.Path(dir)+" "+dir)
	}
	for path := range kernelSettings {
		lines = append(lines, "if [ -e "+path+" ]; then mount --bind "+n.settingFile(path)+" "+path+"; fi")
	}
	// Pods with mountPropagation need shared mounts.
	return strings.Join(append(lines, "mount --make-rshared /"), "\n")
}

func render(name string, values map[string]string) ([]byte, error) {
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, values); err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	return out.Bytes(), nil
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}
