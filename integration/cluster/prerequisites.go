package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"akri.sh/integration/cluster/binaries"
)

// prerequisite is a Debian package that the cluster needs.
type prerequisite struct {
	pkg string
	// binaries must all be in PATH.
	binaries []string
}

// prerequisites are all packages but that of the CNI plugins.
var prerequisites = []prerequisite{
	{"iproute2", []string{"ip"}},
	{"iptables", []string{"iptables", "iptables-save", "iptables-restore"}},
	{"util-linux", []string{"nsenter", "setsid"}},
	{"mount", []string{"mount", "umount"}},
	{"runc", []string{"runc"}},
}

func requireRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root for namespaces, mounts and control groups; run it with sudo")
	}
	return nil
}

const (
	inotifyInstancesFile = "/proc/sys/fs/inotify/max_user_instances"
	// inotifyInstances is the value that the documentation of kind recommends. A cluster of two
	// nodes uses about 40, those of all clusters count together, and the kernel's default is 128.
	inotifyInstances = 512
)

// raiseInotifyInstances raises the limit in the file to at least want. Without an instance a
// kubelet exits, also later when its node restarts, and containerd and Akri's services fail.
func raiseInotifyInstances(file string, want int) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the limit of inotify instances: %w", err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	if limit >= want {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(want)), 0o644); err != nil {
		return fmt.Errorf("fs.inotify.max_user_instances is %d; run sysctl --write fs.inotify.max_user_instances=%d: %w",
			limit, want, err)
	}
	return nil
}

// ensurePrerequisites installs the missing packages with apt-get, or returns an error that names
// them. Clusters that start at the same time wait for each other, because apt-get fails while
// another one runs.
func ensurePrerequisites(ctx context.Context, missingPackages func() []string, step func(string)) error {
	cache, err := binaries.CacheDir()
	if err != nil {
		return err
	}
	unlock, err := binaries.Lock(filepath.Join(cache, "packages"))
	if err != nil {
		return err
	}
	defer unlock()
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}

	install := "apt-get update && apt-get install --yes --no-install-recommends " + strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("commands are missing; install the equivalents of these Debian packages: %s", strings.Join(missing, " "))
	}
	step("installing " + strings.Join(missing, " "))
	cmd := exec.CommandContext(ctx, "sh", "-ec", install)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if _, err := combined(cmd); err != nil {
		return fmt.Errorf("install missing packages with %q: %w", install, err)
	}
	if left := missingPackages(); len(left) > 0 {
		return fmt.Errorf("the packages %q are installed, but their commands are not found", left)
	}
	return nil
}

func missingPackages() []string {
	var missing []string
	for _, p := range prerequisites {
		if slices.ContainsFunc(p.binaries, func(name string) bool { return !onPath(name) }) {
			missing = append(missing, p.pkg)
		}
	}
	if _, err := cniPlugins(); err != nil {
		missing = append(missing, "containernetworking-plugins")
	}
	return missing
}

func onPath(name string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH") + ":" + systemPath) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// cniPlugins returns the directory of the CNI plugins: Debian's, or that of the project's releases.
func cniPlugins() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		complete := true
		for _, plugin := range []string{"ptp", "host-local", "portmap", "loopback"} {
			_, err := os.Stat(filepath.Join(dir, plugin))
			complete = complete && err == nil
		}
		if complete {
			return dir, nil
		}
	}
	return "", errors.New("find the CNI plugins ptp, host-local, portmap and loopback: neither /usr/lib/cni nor /opt/cni/bin has them all")
}
