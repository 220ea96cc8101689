package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroups are the mount points of the control group hierarchies.
//
// Each process of a cluster, with all its descendants and containers, runs in the cluster's group
// of the unified (v2) hierarchy. The group replaces pid files: it lists the running processes, has
// no recycled pids, outlives the process that created it, and the kernel kills it as a whole.
type cgroups struct {
	unified string
	// legacy are the v1 hierarchies. If they exist, the kubelet and runc set limits in them.
	legacy []string
}

func findCgroups() (cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return cgroups{}, fmt.Errorf("read mounts: %w", err)
	}
	found := parseCgroupMounts(string(mounts))
	if found.unified == "" {
		return found, errors.New("no cgroup2 file system is mounted; run mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
	}
	return found, nil
}

// parseCgroupMounts parses /proc/self/mounts.
func parseCgroupMounts(mounts string) cgroups {
	var found cgroups
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[1], "/sys/fs/cgroup") {
			continue
		}
		switch {
		case fields[2] == "cgroup2" && found.unified == "":
			found.unified = fields[1]
		case fields[2] == "cgroup" && !slices.Contains(found.legacy, fields[1]):
			found.legacy = append(found.legacy, fields[1])
		}
	}
	return found
}

// create creates a group for daemons, in the unified hierarchy only.
func (g cgroups) create(group string) error {
	if err := os.MkdirAll(filepath.Join(g.unified, group), 0o755); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	return nil
}

// createForPods creates a group in all hierarchies, with the controllers and CPUs of its parents.
func (g cgroups) createForPods(group string) error {
	if err := g.create(group); err != nil {
		return err
	}
	if len(g.legacy) == 0 {
		return g.delegate(group)
	}
	for _, mount := range g.legacy {
		path := mount
		for name := range strings.SplitSeq(group, "/") {
			parent := path
			path = filepath.Join(path, name)
			if err := os.MkdirAll(path, 0o755); err != nil {
				return fmt.Errorf("create cgroup: %w", err)
			}
			inheritCPUSet(parent, path)
		}
	}
	return nil
}

// delegate enables all available controllers in each ancestor of group. A kubelet needs cpu,
// cpuset, memory and pids.
func (g cgroups) delegate(group string) error {
	path := g.unified
	for name := range strings.SplitSeq(group, "/") {
		controllers, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("read cgroup controllers: %w", err)
		}
		for controller := range strings.FieldsSeq(string(controllers)) {
			// One write for each controller: one that cannot be enabled, such as cpu with real-time
			// processes, must not prevent the others.
			_ = os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
		path = filepath.Join(path, name)
	}
	return nil
}

// join moves a process of this machine into the control groups of another one.
func (g cgroups) join(process, other int) error {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", other))
	if err != nil {
		return fmt.Errorf("read cgroups: %w", err)
	}

	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // id, controllers, path
		if len(fields) < 3 {
			return fmt.Errorf("parse cgroups: %q", line)
		}
		mount := g.unified
		if fields[1] != "" {
			mount = filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(fields[1], "name="))
		}
		if err := os.WriteFile(filepath.Join(mount, fields[2], "cgroup.procs"), []byte(strconv.Itoa(process)), 0o644); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}

	return nil
}

// inheritCPUSet sets the CPUs and memory nodes of a new v1 cpuset, which accepts no process without
// them. Other hierarchies do not have the files.
func inheritCPUSet(parent, child string) {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, err := os.ReadFile(filepath.Join(parent, file)); err == nil {
			_ = os.WriteFile(filepath.Join(child, file), value, 0o644)
		}
	}
}

// open creates the group and returns a directory handle for starting a process in it.
func (g cgroups) open(group string) (*os.File, error) {
	if err := g.create(group); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Join(g.unified, group))
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	return dir, nil
}

// populated reports whether the group or one below it has a process.
func (g cgroups) populated(group string) bool {
	events, err := os.ReadFile(filepath.Join(g.unified, group, "cgroup.events"))
	return err == nil && strings.Contains(string(events), "populated 1")
}

// processList is the file of the group's own processes. A process that writes 0 to it joins the
// group.
func (g cgroups) processList(group string) string {
	return filepath.Join(g.unified, group, "cgroup.procs")
}

// pods is the directory of a group that createForPods created, in a hierarchy in which runc puts
// containers.
func (g cgroups) pods(group string) string {
	return filepath.Join(append(slices.Clone(g.legacy), g.unified)[0], group)
}

// processes returns the group's own processes, without those of groups below it.
func (g cgroups) processes(group string) []int {
	return processesIn(filepath.Join(g.unified, group))
}

// processesIn returns the processes of the group in a directory.
func processesIn(dir string) []int {
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(list)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stop sends SIGTERM to the group's own processes, and kills the whole group if any are left after
// the grace period.
func (g cgroups) stop(ctx context.Context, group string, grace time.Duration) error {
	for _, pid := range g.processes(group) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	waiting, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if Wait(waiting, 20*time.Millisecond, func() error { return g.emptyErr(group) }) == nil {
		return nil
	}
	if err := g.kill(ctx, group); err != nil {
		return err
	}
	return g.remove(ctx, group)
}

// kill sends SIGKILL to all processes in the group and below. The group must be removed before
// another process starts in it: kernels compare the group's kill count with that of the starting
// process's group, and also kill the new process.
func (g cgroups) kill(ctx context.Context, group string) error {
	err := os.WriteFile(filepath.Join(g.unified, group, "cgroup.kill"), []byte("1"), 0o644)
	if errors.Is(err, fs.ErrNotExist) && !g.populated(group) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill cgroup (needs Linux 5.14): %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return Wait(ctx, 10*time.Millisecond, func() error { return g.emptyErr(group) })
}

func (g cgroups) emptyErr(group string) error {
	if g.populated(group) {
		return fmt.Errorf("cgroup %s still has processes", group)
	}
	return nil
}

// remove deletes the group and all groups below it from all hierarchies. It retries while the
// kernel still removes ended processes.
func (g cgroups) remove(ctx context.Context, group string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return Wait(ctx, 20*time.Millisecond, func() error {
		var errs []error
		for _, mount := range append([]string{g.unified}, g.legacy...) {
			errs = append(errs, removeTree(filepath.Join(mount, group)))
		}
		return errors.Join(errs...)
	})
}

// removeTree removes directories only, deepest first. The kernel removes the files of a cgroup.
func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}
