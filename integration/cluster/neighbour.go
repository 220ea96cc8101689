package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
)

// NeighbourIP is the address of processes that Neighbour starts, for nodes and pods.
const NeighbourIP = controlPlaneIP

// Neighbour returns a command that runs on the nodes' network but not on a node, as devices do. It
// is killed with the cluster.
func (c *Cluster) Neighbour(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	if c.machine == nil {
		return nil, fmt.Errorf("run %s on the nodes' network: %w", name, ErrExternal)
	}
	enter := []string{inNetns(c.netns(controlPlane))}
	return c.entering(ctx, c.cgroup(controlPlane, "neighbours"), enter, name, args)
}

// entering returns a command that runs in the namespaces and in the cgroup, which it creates.
func (c *Cluster) entering(ctx context.Context, group string, enter []string, name string, args []string) (*exec.Cmd, error) {
	if err := c.cgroups.create(group); err != nil {
		return nil, err
	}
	join := []string{"-c", `echo 0 > "$0" && exec nsenter "$@"`, c.cgroups.processList(group)}
	cmd := exec.CommandContext(ctx, "sh", slices.Concat(join, enter, []string{name}, args)...)
	cmd.Env = c.environment()
	return cmd, nil
}
