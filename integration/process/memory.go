package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// memoryGroup is the directory of a control group that counts the memory of one process, as that of
// a container does. Empty: none.
type memoryGroup string

func newMemoryGroup(name string) (memoryGroup, error) {
	mount := "/sys/fs/cgroup/memory" // version 1
	if _, err := os.Stat(mount); errors.Is(err, fs.ErrNotExist) {
		mount = "/sys/fs/cgroup"
		// Usually the controller is enabled already. Otherwise reading the memory fails.
		_ = os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("+memory"), 0o644)
	}
	dir := filepath.Join(mount, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("create control group: %w", err)
	}
	return memoryGroup(dir), nil
}

func (g memoryGroup) add(pid int) error {
	if err := os.WriteFile(filepath.Join(string(g), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("add process to control group: %w", err)
	}
	return nil
}

// remove removes the group, which must have no processes.
func (g memoryGroup) remove() error {
	if g == "" {
		return nil
	}
	if err := os.Remove(string(g)); err != nil {
		return fmt.Errorf("remove control group: %w", err)
	}
	return nil
}
