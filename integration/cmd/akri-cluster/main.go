// Command akri-cluster runs a real Kubernetes cluster of several nodes on this machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"akri.sh/integration/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	var cli commands
	parsed := kong.Parse(&cli, kong.Name("akri-cluster"), kong.UsageOnError(),
		kong.Description("A real Kubernetes cluster of several nodes on this machine, for tests and demos. Needs root."),
		kong.Vars{"dir": cluster.DefaultDir}, kong.BindTo(ctx, (*context.Context)(nil)))
	if err := parsed.Run(&cli); err != nil {
		fmt.Fprintln(os.Stderr, "akri-cluster:", err)
		os.Exit(1)
	}
}
