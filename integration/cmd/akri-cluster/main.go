// Command akri-cluster runs a real Kubernetes cluster of several nodes on this machine.
package main

import (
	"context"

	"github.com/alecthomas/kong"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cmd/internal/command"
)

func main() {
	var cli commands
	command.Run("akri-cluster", "A real Kubernetes cluster of several nodes on this machine, for tests and demos. Needs root.", &cli,
		func(ctx context.Context, parsed *kong.Context) error {
			parsed.BindTo(ctx, (*context.Context)(nil))
			return parsed.Run(&cli)
		}, kong.Vars{"dir": cluster.DefaultDir})
}
