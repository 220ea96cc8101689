// Command akri-demo shows Akri on a real cluster on this machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"akri.sh/integration/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var cli struct {
		Dir string `help:"Directory of the cluster's state." env:"AKRI_CLUSTER_DIR" type:"path"`
	}
	kong.Parse(&cli, kong.Name("akri-demo"), kong.UsageOnError(),
		kong.Description("Starts a cluster of two nodes on this machine, installs Akri, plugs a real device in and out and prints each step. Needs root. With KUBECONFIG it uses that cluster."))
	if err := demo.Run(ctx, demo.Options{Dir: cli.Dir, Out: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "akri-demo:", err)
		os.Exit(1)
	}
}
