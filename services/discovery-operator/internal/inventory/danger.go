package inventory

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Allow are exceptions to what devices may not ask for: a handler may be anybody's, and what it sends ends up in the
// containers of others.
type Allow struct {
	// HostPaths may be mounted, and everything below them.
	HostPaths []string
	// Properties are names of environment variables that may be set.
	Properties []string
}

// dangerousPaths give a container the node, or the credentials of others. Of the second kind everything below is refused
// too.
var (
	dangerousPaths = []string{"/", "/dev", "/home", "/lib", "/lib64", "/opt", "/run", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/run"}
	dangerousTrees = []string{
		"/bin", "/boot", "/etc", "/proc", "/root", "/sbin", "/usr/bin", "/usr/lib", "/usr/sbin",
		"/run/akri", "/run/containerd", "/run/crio", "/run/docker", "/run/docker.sock", "/run/dbus", "/run/k3s", "/run/podman", "/run/secrets", "/run/systemd",
		"/var/lib/akri", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd", "/var/lib/kubelet", "/var/lib/rancher", "/var/log",
		"/sys/fs/cgroup", "/sys/kernel",
	}
	// dangerousNodes are device nodes of memory, and all folders of device nodes are refused by dangerousPaths.
	dangerousNodes = []string{"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg"}
)

// dangerousNames decide what a program runs, or whom it trusts.
var dangerousNames = []string{
	"BASH_ENV", "CLASSPATH", "ENV", "GCONV_PATH", "HOME", "HOSTALIASES", "IFS", "JAVA_TOOL_OPTIONS", "KUBECONFIG", "NODE_OPTIONS", "PATH",
	"PERL5LIB", "PERL5OPT", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "RUBYLIB", "RUBYOPT", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE",
}

// dangerousPrefixes are those of the dynamic linker, the C library and the cluster's own address.
var dangerousPrefixes = []string{"LD_", "DYLD_", "MALLOC_", "GLIBC_", "KUBERNETES_SERVICE_", "KUBERNETES_PORT"}

func (a Allow) property(name string) error {
	upper := strings.ToUpper(name)
	dangerous := slices.Contains(dangerousNames, upper) ||
		slices.ContainsFunc(dangerousPrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) }) ||
		strings.HasSuffix(upper, "_PROXY")
	if dangerous && !slices.Contains(a.Properties, name) {
		return fmt.Errorf("property %.100q, which decides what programs do: allow it with --allow-properties if it is meant", name)
	}
	return nil
}

// hostPath judges the path as it is after `..` and what is commonly a symbolic link.
func (a Allow) hostPath(what, host string) error {
	clean := path.Clean(host)
	if clean == "/var/run" || strings.HasPrefix(clean, "/var/run/") {
		clean = strings.TrimPrefix(clean, "/var")
	}
	dangerous := slices.Contains(dangerousPaths, clean) || slices.Contains(dangerousNodes, clean) ||
		slices.ContainsFunc(dangerousTrees, func(tree string) bool { return within(tree, clean) })
	allowed := func(tree string) bool {
		return within(path.Clean(tree), path.Clean(host)) || within(path.Clean(tree), clean)
	}
	if dangerous && !slices.ContainsFunc(a.HostPaths, allowed) {
		return fmt.Errorf("%s of host path %.100q, which gives away the node: allow it with --allow-host-paths if it is meant", what, host)
	}
	return nil
}

func within(tree, file string) bool {
	return file == tree || strings.HasPrefix(file, strings.TrimSuffix(tree, "/")+"/")
}
