package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/tools/kubectl-akri/internal/forget"
	"akri.sh/tools/kubectl-akri/internal/print"
)

func (o *options) forget() *cobra.Command {
	var yes, force bool
	c := &cobra.Command{
		Use:   "forget NODE",
		Short: "Removes the devices of a node on which Akri runs no more.",
		Long: `Removes the devices of a node on which Akri runs no more.

Devices of a node stay while its services are down, because these may return. After Akri was removed
from a node that remains in the cluster, this command removes the node from Instances, releases its
slots, and deletes the Instances of devices that no other node sees. The brokers of these devices
end. A node that runs Akri again reports its devices again.`,
		Args:              oneArgument,
		ValidArgsFunction: o.completeNode,
		RunE: func(c *cobra.Command, arguments []string) error {
			client, namespace, err := o.connect()
			if err != nil {
				return err
			}
			snapshot, err := client.Snapshot(c.Context(), namespace)
			if err != nil {
				return err
			}
			if snapshot.NoAPI() {
				return cluster.ErrNoAPI
			}
			plan := forget.Of(snapshot, arguments[0])
			print.Plan(c.OutOrStdout(), plan)
			switch {
			case len(plan.Changes) == 0:
				return nil
			case len(plan.Obstacles) > 0 && !force:
				return fmt.Errorf("%s (--force ignores this)", strings.Join(plan.Obstacles, "; "))
			}
			if !yes {
				if err := confirm(c.InOrStdin(), c.OutOrStdout()); err != nil {
					return err
				}
			}
			return forget.Apply(c.Context(), client, plan)
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask.")
	c.Flags().BoolVar(&force, "force", false, "Forget the node although Akri still runs there, or Pods there use devices.")
	return c
}

var errNotConfirmed = errors.New("nothing was changed")

// confirm asks the user.
func confirm(r io.Reader, w io.Writer) error {
	fmt.Fprint(w, "Continue? [y/N] ")
	answer, err := bufio.NewReader(r).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	return nil
}

func (o *options) completeNode(c *cobra.Command, arguments []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(arguments) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	snapshot, _, err := o.snapshot(c.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return nodesOfInstances(snapshot), cobra.ShellCompDirectiveNoFileComp
}

func nodesOfInstances(s *explain.Snapshot) []string {
	var nodes []string
	for i := range s.Instances {
		nodes = append(nodes, s.Instances[i].Spec.Nodes...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
