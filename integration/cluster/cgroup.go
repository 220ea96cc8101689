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

// cgroups knows where the control group hierarchies are mounted.
//
// Every process of a cluster starts inside the cluster's branch of the unified (v2) hierarchy, and so do all its descendants,
// containers included. The branch therefore is what pid files try to be: it lists what runs, never names a recycled pid, survives
// the death of whoever started it, and the kernel kills it as a whole.
type cgroups struct {
	unified string
	// legacy are the v1 hierarchies. Where there are any, the kubelet and runc keep their limits there.
	legacy []string
}

func findCgroups() (cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return cgroups{}, fmt.Errorf("read mounts: %w", err)
	}
	found := parseCgroupMounts(string(mounts))
	if found.unified == "" {
		return found, errors.New("no cgroup2 file system is mounted: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
	}
	return found, nil
}

// parseCgroupMounts reads the format of /proc/self/mounts.
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

// create makes a group in the unified hierarchy only, for daemons.
func (g cgroups) create(group string) error {
	if err := os.MkdirAll(filepath.Join(g.unified, group), 0o755); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	return nil
}

// createForPods makes a group in every hierarchy and passes it the controllers and CPUs that its parents have.
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

// delegate enables in each ancestor of group what the kernel offers; a kubelet needs cpu, cpuset, memory and pids.
func (g cgroups) delegate(group string) error {
	path := g.unified
	for name := range strings.SplitSeq(group, "/") {
		offered, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("read cgroup controllers: %w", err)
		}
		for controller := range strings.FieldsSeq(string(offered)) {
			// One by one: a controller that cannot be enabled, such as cpu beside real-time processes, must not take the rest with it.
			_ = os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
		path = filepath.Join(path, name)
	}
	return nil
}

// inheritCPUSet fills what a new v1 cpuset leaves empty, and without which it accepts no process. Other hierarchies lack the files.
func inheritCPUSet(parent, child string) {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, err := os.ReadFile(filepath.Join(parent, file)); err == nil {
			_ = os.WriteFile(filepath.Join(child, file), value, 0o644)
		}
	}
}

// open returns a directory handle for starting a process inside the group.
func (g cgroups) open(group string) (*os.File, error) {
	dir, err := os.Open(filepath.Join(g.unified, group))
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	return dir, nil
}

// populated says whether any process lives in the group or below it.
func (g cgroups) populated(group string) bool {
	events, err := os.ReadFile(filepath.Join(g.unified, group, "cgroup.events"))
	return err == nil && strings.Contains(string(events), "populated 1")
}

// processList is the file that lists the group's own processes, and that a process joins by writing 0 to it.
func (g cgroups) processList(group string) string {
	return filepath.Join(g.unified, group, "cgroup.procs")
}

// processes lists the group's own processes, not those of groups below.
func (g cgroups) processes(group string) []int {
	list, err := os.ReadFile(g.processList(group))
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

// stop asks the group's own processes to end, and kills the whole group when some are left after the grace.
func (g cgroups) stop(ctx context.Context, group string, grace time.Duration) error {
	for _, pid := range g.processes(group) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	waiting, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if wait(waiting, 20*time.Millisecond, func() error { return g.emptyErr(group) }) == nil {
		return nil
	}
	if err := g.kill(ctx, group); err != nil {
		return err
	}
	return g.remove(ctx, group)
}

// kill ends every process in the group and below, at once and without appeal. The group must be removed before anything starts in it
// again: kernels confuse the kill count of the group with that of the starter's, and kill the newcomer as well.
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
	return wait(ctx, 10*time.Millisecond, func() error { return g.emptyErr(group) })
}

func (g cgroups) emptyErr(group string) error {
	if g.populated(group) {
		return fmt.Errorf("processes are left in cgroup %s", group)
	}
	return nil
}

// remove deletes the group, and all below it, from every hierarchy. What a just ended process still holds is tried again.
func (g cgroups) remove(ctx context.Context, group string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return wait(ctx, 20*time.Millisecond, func() error {
		var errs []error
		for _, mount := range append([]string{g.unified}, g.legacy...) {
			errs = append(errs, removeTree(filepath.Join(mount, group)))
		}
		return errors.Join(errs...)
	})
}

// removeTree deletes folders only, deepest first: the files of a cgroup go with it.
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
