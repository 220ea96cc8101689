package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Container is a running container, or the sandbox of a Pod.
type Container struct {
	// PodUID is the uid of the Pod, ID that of the container in containerd.
	PodUID, ID string
	// PID is the machine's process id of the main process.
	PID int
}

// Containers returns the running containers of all Pods. It reads the control groups, so it does
// not depend on containerd, the kubelet and the API server.
func (n Node) Containers() ([]Container, error) {
	var found []Container
	err := filepath.WalkDir(n.cluster.cgroups.pods(n.cluster.podCgroup(n.name)), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the container has ended
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		uid, isContainer := strings.CutPrefix(filepath.Base(filepath.Dir(path)), "pod")
		if pids := processesIn(path); isContainer && len(pids) > 0 {
			found = append(found, Container{PodUID: uid, ID: filepath.Base(path), PID: slices.Min(pids)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list containers of node %s: %w", n.name, err)
	}
	return found, nil
}

// KillContainer sends a signal to the main process of a running container. Kubernetes is not
// involved, as in a crash.
func (n Node) KillContainer(ctx context.Context, namespace, pod, container string, signal syscall.Signal) error {
	pid, err := n.ContainerPID(ctx, namespace, pod, container)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("kill container %s of pod %s/%s: %w", container, namespace, pod, err)
	}
	return nil
}

// JoinContainer moves a process of this machine into the control groups of a container, so that the
// limits of the container apply to it.
func (n Node) JoinContainer(ctx context.Context, namespace, pod, container string, process int) error {
	pid, err := n.ContainerPID(ctx, namespace, pod, container)
	if err != nil {
		return err
	}
	if err := n.cluster.cgroups.join(process, pid); err != nil {
		return fmt.Errorf("move process %d to container %s of pod %s/%s: %w", process, container, namespace, pod, err)
	}
	return nil
}

// ContainerPID returns the machine's process id of the main process of a running container.
func (n Node) ContainerPID(ctx context.Context, namespace, pod, container string) (int, error) {
	ids, err := n.containers(ctx, namespace, pod, container)
	if err != nil {
		return 0, err
	}
	tasks, err := n.ctrOutput(ctx, "tasks", "list")
	if err != nil {
		return 0, err
	}
	for id, pid := range parseTasks(tasks) {
		if slices.Contains(ids, id) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("container %s of pod %s/%s does not run on %s", container, namespace, pod, n.name)
}

// containers returns the ids of all instances of a container, including ended ones.
func (n Node) containers(ctx context.Context, namespace, pod, container string) ([]string, error) {
	filter := fmt.Sprintf(`labels."io.kubernetes.pod.namespace"==%q,labels."io.kubernetes.pod.name"==%q,labels."io.kubernetes.container.name"==%q`,
		namespace, pod, container)
	out, err := n.ctrOutput(ctx, "containers", "list", "--quiet", filter)
	if err != nil {
		return nil, err
	}
	return strings.Fields(out), nil
}

// parseTasks returns the running tasks in the output of "ctr tasks list": TASK PID STATUS.
func parseTasks(table string) map[string]int {
	tasks := map[string]int{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "RUNNING" {
			continue
		}
		if pid, err := strconv.Atoi(fields[1]); err == nil && pid > 0 {
			tasks[fields[0]] = pid
		}
	}
	return tasks
}

// ctr returns a command of containerd's client for the images and containers of Kubernetes.
func (n Node) ctr(ctx context.Context, args ...string) (*exec.Cmd, error) {
	return n.Command(ctx, "ctr", append([]string{"--namespace", "k8s.io"}, args...)...)
}

func (n Node) ctrOutput(ctx context.Context, args ...string) (string, error) {
	cmd, err := n.ctr(ctx, args...)
	if err != nil {
		return "", err
	}
	return combined(cmd)
}
