// Command akri-demo shows Akri on a real cluster on this machine.
package main

import (
	"context"
	"os"

	"github.com/alecthomas/kong"

	"akri.sh/integration/cmd/internal/command"
	"akri.sh/integration/demo"
)

func main() {
	options := demo.Options{Out: os.Stdout}
	command.Run("akri-demo",
		"Starts a cluster of two nodes on this machine, installs Akri, plugs a real device in and out and prints each step. Needs root. With KUBECONFIG it uses that cluster.",
		&options, func(ctx context.Context, _ *kong.Context) error { return demo.Run(ctx, options) })
}
