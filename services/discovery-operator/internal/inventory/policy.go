package inventory

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Policy lists the exceptions to what devices must not request. Any process that can register as a
// handler decides what containers get.
type Policy struct {
	// AllowHostPaths are paths that may be mounted, with all paths below them.
	AllowHostPaths []string
	// AllowProperties are names of environment variables that may be set.
	AllowProperties []string
}

// These paths give a container control of the node or the credentials of others. Paths below
// dangerousTrees are refused too.
var (
	dangerousPaths = []string{
		"/", "/dev", "/home", "/lib", "/lib64", "/opt", "/run", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/run",
	}
	dangerousTrees = []string{
		"/bin", "/boot", "/etc", "/proc", "/root", "/sbin", "/usr/bin", "/usr/lib", "/usr/sbin",
		"/run/akri", "/run/containerd", "/run/crio", "/run/docker", "/run/docker.sock", "/run/dbus", "/run/k3s", "/run/podman",
		"/run/secrets", "/run/systemd",
		"/var/lib/akri", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd",
		"/var/lib/kubelet", "/var/lib/rancher", "/var/log",
		"/sys/fs/cgroup", "/sys/kernel",
	}
	// dangerousNodes are the device nodes of memory.
	dangerousNodes = []string{"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg"}
)

// dangerousNames are environment variables that change which code a process runs or which servers
// it trusts.
var dangerousNames = []string{
	"BASH_ENV", "CLASSPATH", "ENV", "GCONV_PATH", "HOME", "HOSTALIASES", "IFS", "JAVA_TOOL_OPTIONS",
	"KUBECONFIG", "NODE_OPTIONS", "PATH",
	"PERL5LIB", "PERL5OPT", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "RUBYLIB", "RUBYOPT",
	"SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE",
}

// dangerousPrefixes belong to the dynamic linker, the C library and the address of the API server.
var dangerousPrefixes = []string{"LD_", "DYLD_", "MALLOC_", "GLIBC_", "KUBERNETES_SERVICE_", "KUBERNETES_PORT"}

func (p Policy) checkProperty(name string) error {
	upper := strings.ToUpper(name)
	dangerous := slices.Contains(dangerousNames, upper) ||
		slices.ContainsFunc(dangerousPrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) }) ||
		strings.HasSuffix(upper, "_PROXY")
	if dangerous && !slices.Contains(p.AllowProperties, name) {
		return fmt.Errorf("property %.100q, which changes how programs run; allow it with --allow-properties", name)
	}
	return nil
}

// checkHostPath resolves `..` and the usual symbolic link /var/run; other links are not followed.
func (p Policy) checkHostPath(kind, host string) error {
	clean := path.Clean(host)
	if clean == "/var/run" || strings.HasPrefix(clean, "/var/run/") {
		clean = strings.TrimPrefix(clean, "/var")
	}
	dangerous := slices.Contains(dangerousPaths, clean) || slices.Contains(dangerousNodes, clean) ||
		slices.ContainsFunc(dangerousTrees, func(tree string) bool { return contains(tree, clean) })
	allowed := func(tree string) bool {
		return contains(path.Clean(tree), path.Clean(host)) || contains(path.Clean(tree), clean)
	}
	if dangerous && !slices.ContainsFunc(p.AllowHostPaths, allowed) {
		return fmt.Errorf("%s of host path %.100q, which gives access to the node; allow it with --allow-host-paths", kind, host)
	}
	return nil
}

// contains returns whether the tree contains the file.
func contains(tree, file string) bool {
	return file == tree || strings.HasPrefix(file, strings.TrimSuffix(tree, "/")+"/")
}
