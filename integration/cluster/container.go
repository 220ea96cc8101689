package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

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
