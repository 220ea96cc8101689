package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"akri.sh/integration/cluster/binaries"
)

// daemon is a process that outlives the process that started it.
type daemon struct {
	// name is the name of the log file.
	name string
	// cgroup is the group of the process and all its descendants.
	cgroup string
	// enter are the arguments of nsenter: the namespaces to run in.
	enter []string
	// newMounts creates a mount namespace for the process.
	newMounts bool
	// files are inherited as descriptors 3 and up.
	files []*os.File
	args  []string
}

// start forks the process and returns. The caller checks whether it works.
//
// setsid --fork makes init the parent of the process, which collects it when it ends. nsenter
// executes the binary without another fork.
func (m *machine) start(ctx context.Context, d daemon) error {
	group, err := m.cgroups.open(d.cgroup)
	if err != nil {
		return err
	}
	defer group.Close()
	log, err := os.OpenFile(m.log(d.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "setsid", append(append([]string{"--fork", "nsenter"}, d.enter...), d.args...)...)
	cmd.Env, cmd.Dir = m.environment(), "/"
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, d.files
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if d.newMounts {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	return nil
}

// kill kills the daemon and its children with SIGKILL. It can be started again.
func (m *machine) kill(ctx context.Context, d daemon) error {
	if err := m.cgroups.kill(ctx, d.cgroup); err != nil {
		return err
	}
	return m.cgroups.remove(ctx, d.cgroup)
}

// alive returns nil while the daemon runs, and otherwise an error with the end of its log.
func (m *machine) alive(d daemon) error {
	if m.cgroups.populated(d.cgroup) {
		return nil
	}
	return fmt.Errorf("%s has exited; the end of %s:\n%s", d.name, m.log(d.name), tail(m.log(d.name), 5))
}

// await waits until check returns nil, at most 90 s, and only while the daemons run.
func (m *machine) await(ctx context.Context, what string, check func(context.Context) error, daemons ...daemon) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	err := Wait(ctx, 50*time.Millisecond, func() error {
		for _, d := range daemons {
			if err := m.alive(d); err != nil {
				cancel() // the daemon does not restart by itself
				return err
			}
		}
		return check(ctx)
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// environment has the cluster's binaries first in PATH. It adds Debian's system directories, which
// plain su does not.
func (m *machine) environment() []string {
	path := strings.Join([]string{m.path("bin"), os.Getenv("PATH"), systemPath}, ":")
	return []string{"PATH=" + path, "HOME=/root", "LANG=C.UTF-8"}
}

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (m *machine) bin(name string) string {
	return filepath.Join(m.path("bin"), binaries.Earlier(name, m.kubernetes))
}

// binFor is the path of a program for a machine of the architecture, or of this machine's if it is
// empty.
func (m *machine) binFor(architecture, name string) string {
	return binaries.For(m.bin(name), architecture)
}

func inNetns(name string) string { return "--net=" + filepath.Join("/run/netns", name) }

func inMountsOf(pid int) string {
	return "--mount=" + filepath.Join("/proc", strconv.Itoa(pid), "ns/mnt")
}

// run executes a short command. Only an error contains its output. The command runs in the
// cluster's cgroup, so that after a killed Up it creates nothing that Down has removed.
func (m *machine) run(ctx context.Context, name string, args ...string) error {
	group, err := m.cgroups.open(m.cgroup("helpers"))
	if err != nil {
		return err
	}
	defer group.Close()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	_, err = combined(cmd)
	return err
}

func combined(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
