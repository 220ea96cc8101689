// Command akri-bench measures Akri on a real cluster on this machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"akri.sh/integration/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var cli struct {
		Dir    string        `help:"Directory of the cluster, which is removed at the end." default:"/tmp/akri-bench" type:"path"`
		Rounds int           `help:"Number of hot-plug rounds." default:"30"`
		Only   string        `help:"Only measurement to run: brokers, dra, dra-idle, idle, scale, scheduling, sharing or turnaround." enum:",brokers,dra,dra-idle,idle,scale,scheduling,sharing,turnaround" default:""`
		Nodes  []int         `help:"Numbers of simulated nodes for scale." default:"100,500,1000"`
		Idle   time.Duration `help:"Time for which scale measures without changes." default:"12m"`
		Agent  bool          `help:"Simulate nodes with the agent in scale, which has one connection to instance-writer instead of two."`
	}
	kong.Parse(&cli, kong.Name("akri-bench"), kong.UsageOnError(),
		kong.Description("Measures Akri on a cluster of two nodes on this machine and prints Markdown. Needs root."))
	err := bench.Run(ctx, bench.Options{
		Dir: cli.Dir, Rounds: cli.Rounds, Only: cli.Only, Nodes: cli.Nodes, Idle: cli.Idle, Agent: cli.Agent, Out: os.Stdout, Progress: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "akri-bench:", err)
		os.Exit(1)
	}
}
