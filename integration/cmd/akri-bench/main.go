// Command akri-bench measures Akri on a real cluster on this machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"akri.sh/integration/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var cli struct {
		Dir    string `help:"Directory of the cluster, which is removed at the end." default:"/tmp/akri-bench" type:"path"`
		Rounds int    `help:"Number of hot-plug rounds." default:"30"`
		Only   string `help:"Only measurement to run: brokers, idle or turnaround." enum:",brokers,idle,turnaround" default:""`
	}
	kong.Parse(&cli, kong.Name("akri-bench"), kong.UsageOnError(),
		kong.Description("Measures Akri on a cluster of two nodes on this machine and prints Markdown. Needs root."))
	if err := bench.Run(ctx, bench.Options{Dir: cli.Dir, Rounds: cli.Rounds, Only: cli.Only, Out: os.Stdout, Progress: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, "akri-bench:", err)
		os.Exit(1)
	}
}
