// Command akri-soak runs Akri on a real cluster on this machine while everything changes and fails.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"akri.sh/integration/soak"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	var cli struct {
		Dir      string        `help:"Directory of the cluster, which is removed at the end." default:"/tmp/akri-soak" type:"path"`
		Logs     string        `help:"Directory of the logs of Akri and of the actions, which is emptied first." default:"/tmp/akri-soak-logs" type:"path"`
		Duration time.Duration `help:"Duration of the run." default:"1h"`
		Churn    time.Duration `help:"Time of changes between two quiet phases." default:"1m"`
		Settle   time.Duration `help:"Maximum time until the state is that of the model." default:"3m"`
		Form     string        `help:"Form of the node services: services or agent." enum:"services,agent" default:"services"`
		Nodes    []string      `help:"Names of the nodes, at least two." default:"node-a,node-b"`
		Zram     int           `help:"Number of zram devices, which all clusters of the machine see." default:"2"`
		Seed     uint64        `help:"Seed of the changes. 0: a random one."`
	}
	kong.Parse(&cli, kong.Name("akri-soak"), kong.UsageOnError(), kong.Description(
		"Changes devices, Configurations and Pods, kills processes, checks invariants and measures growth on a cluster on this machine. Needs root. An interrupt ends the run and prints the table."))
	for cli.Seed == 0 {
		cli.Seed = rand.Uint64()
	}
	err := soak.Run(ctx, soak.Options{
		Dir: cli.Dir, Logs: cli.Logs, Duration: cli.Duration, Churn: cli.Churn, Settle: cli.Settle, Agent: cli.Form == "agent", Nodes: cli.Nodes,
		Zram: cli.Zram, Seed: cli.Seed, Growth: true, Out: os.Stdout, Progress: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "akri-soak:", err)
		os.Exit(1)
	}
}
