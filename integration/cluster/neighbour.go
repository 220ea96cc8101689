package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
)

// NeighbourIP is where nodes and their pods reach what Neighbour runs.
const NeighbourIP = controlPlaneIP

// Neighbour prepares a program to run on the network of the nodes and beside them, as devices do. It ends with the cluster.
func (c *Cluster) Neighbour(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	if c.machine == nil {
		return nil, fmt.Errorf("run %s on the nodes' network: %w", name, ErrExternal)
	}
	enter := []string{inNetns(c.netns(controlPlane))}
	return c.entering(ctx, c.cgroup(controlPlane, "neighbours"), enter, name, args)
}

// entering prepares a program to run in namespaces and in a cgroup, which is made.
func (c *Cluster) entering(ctx context.Context, group string, enter []string, name string, args []string) (*exec.Cmd, error) {
	if err := c.cgroups.create(group); err != nil {
		return nil, err
	}
	join := []string{"-c", `echo 0 > "$0" && exec nsenter "$@"`, c.cgroups.processList(group)}
	cmd := exec.CommandContext(ctx, "sh", slices.Concat(join, enter, []string{name}, args)...)
	cmd.Env = c.environment()
	return cmd, nil
}
